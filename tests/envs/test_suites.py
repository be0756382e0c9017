"""The dummy and crafter suites, and what all suites share."""

import json
import subprocess
import sys

import numpy as np
import pytest

import embodied
from embodied import envs, spaces
from embodied.core import wrappers

FLAGS = ('reward', 'is_first', 'is_last', 'is_terminal')


def play(env, steps, seed=0):
    """Observations of random play, each checked against its space by the wrappers."""
    rng = np.random.default_rng(seed)
    env = wrappers.wrap(env)
    act_space = {k: v for k, v in env.act_space.items() if k != 'reset'}
    result = []
    for step in range(steps):
        act = {k: spaces.sample(v, rng) for k, v in act_space.items()}
        result.append(env.step({**act, 'reset': step == 0}))
    return result


@pytest.mark.parametrize('task', ['dummy_disc', 'dummy_cont', 'crafter_reward'])
def test_same_seed_same_episodes_and_another_differs(task):
    first, again, other = (play(envs.make(task, seed=seed), 50) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert all(np.array_equal(a[key], b[key]) for key in a)
    assert not np.array_equal(first[0]['image'], other[0]['image'])


@pytest.mark.parametrize('task', ['dummy_disc', 'crafter_reward'])
def test_first_step_and_step_after_the_end_reset_whatever_the_action_says(task):
    env = envs.make(task)
    act = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    assert env.step(act)['is_first']
    obs = env.step(act)
    assert not obs['is_first']
    while not obs['is_last']:
        obs = env.step(act)
    assert env.step(act)['is_first']
    assert not env.step(act)['is_first']
    assert env.step({**act, 'reset': np.bool_(True)})['is_first']


def test_dummy_spaces():
    env = envs.make('dummy_disc')
    shapes = {k: (v.dtype, v.shape) for k, v in env.obs_space.items() if k not in FLAGS}
    assert shapes == {
        'image': (np.uint8, (64, 64, 3)),
        'vector': (np.float32, (7,)),
        'token': (np.int32, ()),
        'count': (np.float32, ()),
        'float2d': (np.float32, (4, 5)),
        'int2d': (np.int32, (2, 3)),
    }
    assert env.obs_space['token'].classes == 256
    assert env.act_space['act_disc'].classes == 5
    assert env.act_space['act_cont'].shape == (6,)


@pytest.mark.parametrize('task', ['disc', 'cont'])
def test_dummy_pays_the_best_action(task):
    env = envs.make(f'dummy_{task}')
    obs = env.step({'act_disc': 0, 'act_cont': np.zeros(6), 'reset': True})
    for _ in range(5):
        act = {'act_disc': obs['token'] % 5, 'act_cont': np.tanh(obs['vector'][:6])}
        obs = env.step({**act, 'reset': False})
        assert obs['reward'] == 1
    wrong = {'act_disc': (obs['token'] + 1) % 5, 'act_cont': np.ones(6), 'reset': False}
    assert env.step(wrong)['reward'] < 1


def test_dummy_episodes_have_their_length():
    obs = play(envs.make('dummy_disc', length=3), 8)
    assert [int(x['count']) for x in obs] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [bool(x['is_terminal']) for x in obs] == [False, False, False, True] * 2


def test_crafter_images_are_height_by_width():
    env = envs.make('crafter_reward', size=(48, 64))
    (obs,) = play(env, 1)
    assert obs['image'].shape == (48, 64, 3)
    assert env.act_space['action'].classes == 17
    assert [key for key in env.obs_space if key.startswith('log/')] == ['log/reward']


def test_crafter_death_is_terminal_and_a_time_limit_is_not():
    env = envs.make('crafter_reward')
    noop = {'action': 0, 'reset': False}
    env.step(noop)
    env._env._player.health = 0
    obs = env.step(noop)
    assert obs['is_last']
    assert obs['is_terminal']
    assert env.step(noop)['is_first']
    env._env._length = 1
    obs = env.step(noop)
    assert obs['is_last']
    assert not obs['is_terminal']


def test_crafter_logs_achievements_and_the_hidden_reward():
    env = envs.make('crafter_noreward', logs=True)
    noop = {'action': 0, 'reset': False}
    obs = env.step(noop)
    names = [key for key in obs if key.startswith('log/achievement_')]
    assert len(names) == 22
    assert all(obs[name] == 0 for name in names)
    env._env._player.achievements['collect_wood'] += 2
    obs = env.step(noop)
    assert obs['log/achievement_collect_wood'] == 2
    assert obs['log/reward'] == 1
    assert obs['reward'] == 0


def test_crafter_writes_a_line_per_episode(tmp_path):
    env = envs.make('crafter_noreward', folder=str(tmp_path / 'new'), seed=2)
    noop = {'action': 0, 'reset': False}
    for episode in range(3):
        env.step({**noop, 'reset': True})
        for _ in range(3 + episode):
            env.step(noop)
        env._env._player.achievements['collect_wood'] += 1
        if episode < 2:  # the third is cut by the end
            env._env._player.health = 0
        assert env.step(noop)['is_last'] == (episode < 2)
    lines = (tmp_path / 'new' / 'stats.jsonl').read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first['length'], second['length']) == (4, 5)
    assert first['achievement_collect_wood'] == 1
    assert len(first) == 2 + 22
    assert first['reward'] == 0.1  # 1 for the wood, -0.9 for 9 hearts


CHAIN = """
import hashlib, numpy as np
from embodied import envs
env, rng, digest = envs.make('crafter_reward', seed=3), np.random.default_rng(0), hashlib.md5()
for _ in range(300):
    digest.update(env.step({'action': rng.integers(17), 'reset': False})['image'].tobytes())
print(digest.hexdigest())
"""


def test_crafter_repeats_in_another_process():
    runs = [
        subprocess.run(
            [sys.executable, '-c', CHAIN], capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert len({run.stdout for run in runs}) == 1
    assert len(runs[0].stdout) == 33


def test_a_missing_package_names_suite_and_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'crafter', None)
    with pytest.raises(embodied.UserError, match=r"'crafter'.*\n.*\.\[crafter\].*Dockerfile"):
        envs.make('crafter_reward')


@pytest.mark.parametrize(
    ('task', 'package', 'words'),
    [
        ('atari_pong', 'ale_py', r"'ale_py'[^$]*'\.\[atari\]'[^$]*Dockerfile"),
        ('atari100k_pong', 'ale_py', r"'ale_py'[^$]*'\.\[atari\]'"),
        ('bsuite_catch', 'bsuite', r"'bsuite[^$]*'\.\[bsuite\]'"),
        ('dmc_walker_walk', 'mujoco', r"'mujoco'[^$]*'\.\[dmc\]'[^$]*libegl1 libosmesa6"),
        ('loconav_ant_maze_m', 'labmaze', r"'labmaze'[^$]*'\.\[loconav\]'[^$]*libegl1"),
        ('memmaze_9x9', 'mujoco', r"'mujoco'[^$]*'\.\[memmaze\]'[^$]*libegl1"),
        ('langroom_run', 'langroom', r"'langroom'[^$]*'\.\[langroom\]'"),
        ('procgen_maze', 'envpool', r"'envpool'[^$]*'\.\[procgen\]'[^$]*libqt5gui5"),
    ],
)
def test_every_missing_package_names_extra_and_system_packages(
    monkeypatch, task, package, words
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, 'memory_maze', raising=False)
    with pytest.raises(embodied.UserError, match=words):
        envs.make(task)


def test_naming_suites_imports_none_of_their_packages():
    code = 'import sys; from embodied import envs; envs.find("gym_X-v0"); print(*sys.modules)'
    run = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert 'embodied.envs' in loaded
    assert not loaded & {'crafter', 'gymnasium', 'jax', 'dreamerv3'}
