"""Procgen on envpool."""

import sys

import numpy as np
import pytest

import embodied
from embodied import envs
from embodied.envs.procgen import GAMES, Procgen
from tests.envs import playing

pytestmark = pytest.mark.suites


@pytest.mark.parametrize('game', GAMES)
def test_games_play(game):
    env = envs.make(f'procgen_{game}', seed=1)
    seen = playing.play(env, 200, resets=[100])
    assert seen[0]['image'].shape == (96, 96, 3)
    assert env.act_space['action'].classes == 15
    assert not np.array_equal(seen[0]['image'], seen[100]['image'])
    env.close()


def test_sizes():
    env = envs.make('procgen_maze_easy', size=(64, 64), seed=4)
    inner = Procgen('maze', 'easy', seed=4)
    for a, b in zip(playing.play(env, 20), playing.play(inner, 20), strict=True):
        np.testing.assert_array_equal(a['image'], b['image'])


def test_ends_and_time_limits_are_those_of_the_game():
    """The same levels and actions on the package itself."""
    import envpool

    env = Procgen('maze', seed=3)
    inner = envpool.make(
        'MazeHard-v0', env_type='gymnasium', num_envs=1, seed=3, channel_first=False
    )
    rng = np.random.default_rng(0)
    kinds = set()
    obs, image = env.step({'action': 0, 'reset': True}), inner.reset()[0]
    for _ in range(1600):
        np.testing.assert_array_equal(obs['image'], image[0])
        action = rng.integers(15)
        obs = env.step({'action': action, 'reset': False})
        if obs['is_first']:
            image = inner.reset()[0]
            continue
        image, reward, ended, timed_out, _ = inner.step(np.array([action], np.int32))
        assert obs['reward'] == reward[0]
        assert obs['is_terminal'] == ended[0]
        assert obs['is_last'] == (ended[0] or timed_out[0])
        if obs['is_last']:
            kinds.add(bool(obs['is_terminal']))
    assert kinds == {True, False}  # found the cheese, and ran out of 500 steps


def test_seeds():
    playing.differ(lambda seed: envs.make('procgen_coinrun', seed=seed))


@pytest.mark.parametrize(
    ('task', 'words'),
    [('coinrunn', 'coinrun'), ('coinrun_odd', '_easy'), ('coinrun_memory', "'memory'")],
)
def test_unknown_games_are_named(task, words):
    with pytest.raises(embodied.UserError, match=words):
        envs.make(f'procgen_{task}')


def test_a_missing_system_library_is_named(monkeypatch):
    import envpool

    def fail(*args, **kwargs):
        raise ImportError('EnvPool Procgen requires the system Qt 5 runtime on Linux.')

    monkeypatch.setattr(envpool, 'make', fail)
    with pytest.raises(embodied.UserError, match=r"'procgen' lacks .* Qt 5[^$]*libqt5gui5"):
        envs.make('procgen_coinrun')


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'envpool', None)
    with pytest.raises(embodied.UserError, match=r"'envpool'[^$]*\.\[procgen\]"):
        envs.make('procgen_coinrun')


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'procgen', 'debug')
