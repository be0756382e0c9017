"""The adapter of DeepMind Lab against a double of its module."""

import itertools
import sys

import numpy as np
import pytest

import embodied
from embodied import envs
from embodied.envs.dmlab import ACTIONS, DMLab, embed
from tests.envs import fakelab, playing


@pytest.fixture(autouse=True)
def lab(monkeypatch):
    monkeypatch.setitem(sys.modules, 'deepmind_lab', fakelab)
    return fakelab


def test_episodes_play():
    """30 frames by fours: 8 steps, the last of two frames."""
    env = envs.make('dmlab_goals', seed=1)
    seen = playing.play(env, 200, resets=[95])
    last, terminal = playing.ends(seen)
    assert last[:3] == [8, 17, 26]
    assert last == terminal
    assert all(b - a == 9 for a, b in itertools.pairwise(last) if not a < 95 <= b)
    assert [int(x['image'][0, 0, 2]) for x in seen[:10]] == [
        0, 4, 8, 12, 16, 20, 24, 28, 28, 0,
    ]  # fmt: skip
    inner = fakelab.made[-1]
    assert inner.level == 'contributed/dmlab30/explore_goal_locations_small'
    env.close()
    assert inner.closed


def test_rewards_are_those_of_all_frames():
    env = DMLab('goals', repeat=4)
    env.step({'action': 0, 'reset': True})
    forward = ACTIONS['popart'].index((0, 0, 0, 1, 0, 0, 0))
    rewards = [env.step({'action': forward, 'reset': False})['reward'] for _ in range(8)]
    assert rewards == [4] * 7 + [2]


@pytest.mark.parametrize(('name', 'count'), [('popart', 15), ('impala', 9)])
def test_every_action_reaches_the_level(name, count):
    env = DMLab('goals', repeat=1, actions=name)
    assert env.act_space['action'].classes == count
    env.step({'action': 0, 'reset': True})
    for action in range(count):
        env.step({'action': np.int32(action), 'reset': False})
    assert fakelab.made[-1].actions == [list(x) for x in ACTIONS[name]]


def test_without_episodic_the_end_is_not_terminal():
    seen = playing.play(DMLab('goals', episodic=False), 40)
    assert playing.ends(seen) == ([8, 17, 26, 35], [])


def test_instructions_are_embedded():
    seen = playing.play(envs.make('dmlab_language_select_described_object'), 12)
    assert seen[0]['instr'].shape == (1024,)
    np.testing.assert_array_equal(seen[8]['instr'], seen[0]['instr'])
    words = seen[0]['instr'].reshape(32, 32)
    assert (np.abs(words).sum(1) > 0).tolist() == [True] * 10 + [False] * 22
    np.testing.assert_array_equal(words[1], words[6])  # the, the
    np.testing.assert_array_equal(embed('THE'), embed('the'))
    assert not np.array_equal(embed('the'), embed('hat'))
    assert abs(embed('word ' * 40).std() - 1) < 0.3


def test_seeds():
    playing.differ(lambda seed: DMLab('goals', seed=seed))
    playing.play(DMLab('goals', use_seed=False), 12)
    assert fakelab.made[-1].seeds == [None, None]


def test_the_evaluation_is_on_levels_that_are_held_out():
    DMLab('rooms_collect_good_objects_train', split='eval')
    held_out = fakelab.made[-1]
    assert held_out.level.endswith('objects_test')
    assert held_out.config['allowHoldOutLevels'] == 'true'
    DMLab('rooms_collect_good_objects_train')
    assert fakelab.made[-1].level.endswith('objects_train')
    assert 'allowHoldOutLevels' not in fakelab.made[-1].config


def test_sizes():
    image = playing.play(DMLab('goals', (48, 96)), 1)[0]['image']
    assert image.shape == (48, 96, 3)


def test_what_cannot_be_made_is_said(monkeypatch):
    with pytest.raises(embodied.UserError, match='dmlab_nothing: Failed to init'):
        envs.make('dmlab_nothing')
    with pytest.raises(embodied.UserError, match='popart or impala'):
        DMLab('goals', actions='all')
    monkeypatch.setitem(sys.modules, 'deepmind_lab', None)
    with pytest.raises(embodied.UserError, match=r"'deepmind_lab'[^$]*by hand[^$]*env_python"):
        envs.make('dmlab_goals')
