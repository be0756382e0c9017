"""dmc on the real simulator, and how a renderer is chosen."""

import os

import numpy as np
import pytest

import embodied
from embodied import envs, wrappers
from embodied.envs import rendering
from tests.envs import playing

pytestmark = [
    pytest.mark.suites,
    # Of packages that dm_control imports.
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),
]


@pytest.mark.parametrize(
    ('task', 'keys', 'actions'),
    [
        ('walker_walk', {'orientations': (14,), 'height': (), 'velocity': (9,)}, 6),
        ('cup_catch', {'position': (4,), 'velocity': (4,)}, 2),
        ('fish_swim', {'joint_angles': (7,), 'upright': ()}, 5),
        ('manip_reach_site', {'jaco_arm/joints_pos': (6, 2)}, 9),
        ('rodent_two_touch', {'walker/body_height': (), 'task_logic': (1,)}, 38),
    ],
)
def test_tasks_play(task, keys, actions):
    env = envs.make(f'dmc_{task}', seed=1)
    assert keys.items() <= {k: v.shape for k, v in env.obs_space.items()}.items()
    assert not [k for k, v in env.obs_space.items() if 0 in v.shape]
    assert env.act_space['action'].shape == (actions,)
    seen = playing.play(env, 200, resets=[25])
    assert playing.ends(seen) == ([], [])
    assert seen[0]['image'].shape == (64, 64, 3)
    assert seen[-1]['image'].std() > 5  # something is drawn
    env.close()


@pytest.mark.parametrize('repeat', [1, 4])
def test_values_and_the_time_limit_are_those_of_the_simulator(repeat):
    """The limit of the suite, 1000 steps, is no terminal end."""
    from dm_control import suite

    env = wrappers.wrap(envs.make('dmc_reacher_easy', image=False, repeat=repeat, seed=7))
    inner = suite.load('reacher', 'easy', task_kwargs={'random': 7})
    rng = np.random.default_rng(0)
    for episode in range(2):
        step = inner.reset()
        act = {'action': np.zeros(2, np.float32), 'reset': np.bool_(False)}
        obs = env.step(act)
        count = 0
        while not step.last():
            for key, value in step.observation.items():
                np.testing.assert_array_equal(obs[key], np.float32(value), f'{episode} {key}')
            assert not obs['is_last']
            act['action'] = rng.uniform(-1, 1, 2).astype(np.float32)
            reward = 0.0
            for _ in range(repeat):
                step = inner.step(act['action'].astype(np.float64))
                reward += step.reward
            obs, count = env.step(act), count + 1
            assert obs['reward'] == np.float32(reward)
        assert count == 1000 // repeat
        assert (obs['is_last'], obs['is_terminal'], step.discount) == (True, False, 1.0)
    env.close()


def test_what_is_observed():
    keys = lambda **options: {
        k for k in envs.make('dmc_cartpole_balance', **options).obs_space if k[:3] != 'is_'
    }
    assert keys() == {'position', 'velocity', 'image', 'reward'}
    assert keys(image=False) == {'position', 'velocity', 'reward'}
    assert keys(proprio=False) == {'image', 'reward'}
    with pytest.raises(embodied.UserError, match='nothing to see'):
        keys(proprio=False, image=False)


def test_sizes_and_cameras():
    env = envs.make('dmc_walker_walk', size=(48, 64), camera=1)
    assert playing.play(env, 1)[0]['image'].shape == (48, 64, 3)
    with pytest.raises(embodied.UserError, match=r'Camera 9 .* 0 to 1'):
        envs.make('dmc_walker_walk', camera=9)


def test_images_of_manipulation_hide_what_features_show():
    hidden = envs.make('dmc_manip_lift_brick').obs_space
    shown = envs.make('dmc_manip_lift_brick', image=False).obs_space
    assert {'duplo2x4/position'} <= shown.keys() - hidden.keys()
    assert 'duplo2x4/position' in envs.make('dmc_manip_lift_brick_features').obs_space


@pytest.mark.parametrize('task', ['cartpole_balance', 'manip_reach_site', 'rodent_escape_bowl'])
def test_seeds(task):
    playing.differ(lambda seed: envs.make(f'dmc_{task}', image=False, seed=seed))


def test_mazes_repeat_with_the_seed():
    """They are drawn from numpy's global generator, which stays as it was."""
    playing.differ(lambda seed: envs.make('dmc_rodent_maze_forage', seed=seed), steps=2)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    playing.play(envs.make('dmc_rodent_maze_forage', image=False), 2)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ('task', 'words'),
    [
        ('walker_wlak', 'dmc_walker_walk'),
        ('manip_lift_brik', 'dmc_manip_lift_brick_vision'),
        ('rodent_two_tuch', 'dmc_rodent_two_touch'),
        ('walker', 'for example'),
    ],
)
def test_unknown_tasks_are_named(task, words):
    with pytest.raises(embodied.UserError, match=words):
        envs.make(f'dmc_{task}')


def test_the_first_renderer_that_draws_is_taken(monkeypatch):
    tried = []

    def draws(*works):
        tried.clear()
        monkeypatch.delenv('MUJOCO_GL', raising=False)
        monkeypatch.setattr(rendering, '_draws', lambda x: tried.append(x) or x in works)

    draws('egl', 'osmesa')
    rendering.choose('dmc')
    assert (tried, os.environ['MUJOCO_GL']) == (['egl'], 'egl')
    draws('osmesa')
    rendering.choose('dmc')
    assert (tried, os.environ['MUJOCO_GL']) == (['egl', 'osmesa'], 'osmesa')
    rendering.choose('dmc')  # what is set stays
    assert tried == ['egl', 'osmesa']
    draws()
    with pytest.raises(embodied.UserError, match='apt-get install libegl1 libosmesa6'):
        rendering.choose('dmc')
    rendering.choose('dmc', needed=False)
    assert os.environ['MUJOCO_GL'] == 'disable'


def test_a_renderer_is_tried_in_a_process():
    assert any(rendering._draws(name) for name in rendering.BACKENDS)
    assert not rendering._draws('no_such_backend')


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'dmc_vision', 'debug', '--env.dmc.proprio', 'True')
