"""loconav on the real simulator."""

import numpy as np
import pytest

import embodied
from embodied import envs
from embodied.envs.loconavmazes import MAZES
from tests.envs import playing

pytestmark = [
    pytest.mark.suites,
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),  # of what dm_control imports
]
EYES = 'walker/egocentric_camera'


def raw(env):
    """The simulator's environment behind the wrappers."""
    while 'env' in vars(env):
        env = vars(env)['env']
    return env._env


def idle(env):
    return {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}


@pytest.mark.parametrize(
    ('walker', 'actions', 'joints', 'extra'),
    [
        ('ant', 8, 8, {'walker/bodies_pos': (39,), 'walker/sensors_touch': (9,)}),
        ('quadruped', 12, 16, {'walker/sensors_force': (12,)}),
    ],
)
def test_walkers_play(walker, actions, joints, extra):
    env = envs.make(f'loconav_{walker}_maze_m', seed=1)
    shapes = {k: v.shape for k, v in env.obs_space.items()}
    assert env.act_space['action'].shape == (actions,)
    wanted = {'walker/joints_pos': (joints,), 'walker/body_height': (), EYES: (64, 64, 3)}
    assert {**wanted, **extra}.items() <= shapes.items()
    assert not [k for k, v in shapes.items() if 0 in v]
    seen = playing.play(env, 200, resets=[120])
    last, terminal = playing.ends(seen)
    assert last == terminal  # at most by falling on the back
    assert seen[-1][EYES].std() > 5
    np.testing.assert_array_equal(seen[-1][EYES], seen[-1]['log/image'])
    assert seen[0]['log/coverage'] == 1
    env.close()


@pytest.mark.parametrize('maze', MAZES)
def test_mazes_are_built_as_they_are_drawn(maze):
    env = envs.make(f'loconav_ant_{maze}', size=(16, 16))
    arena = raw(env).task.root_entity
    rows = MAZES[maze]
    assert (arena.maze.height, arena.maze.width) == (len(rows), len(rows[0]))
    playing.play(env, 1)
    ours = {x for row in rows for x in row} - {' ', 'P', 'G'}
    geoms = [x.name for x in arena.mjcf_model.find('body', 'maze_body').geom]
    assert {x.removeprefix('wall')[0] for x in geoms} == ours
    if maze != 'empty':
        (spawn,) = [(x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == 'P']
        middle = (np.array([len(rows[0]), len(rows)]) - 1) / 2
        place = (np.array(spawn) - middle) * [1.2, -1.2]
        np.testing.assert_allclose(arena.spawn_positions[0][:2], place)
    env.close()


def test_the_goal_pays_and_ends_without_terminal():
    env = envs.make('loconav_ant_maze_s', size=(16, 16))
    env.step(idle(env))
    physics, task = raw(env).physics, raw(env).task
    with physics.reset_context():
        task._walker.set_pose(physics, position=task._target_position)
    obs = env.step(idle(env))
    assert (obs['reward'], obs['is_last'], obs['is_terminal']) == (1, True, False)
    assert env.step(idle(env))['is_first']


def test_the_goal_again_and_again():
    env = envs.make('loconav_ant_maze_s', size=(16, 16), again=True)
    env.step(idle(env))
    for _ in range(2):
        physics, task = raw(env).physics, raw(env).task
        with physics.reset_context():
            task._walker.set_pose(physics, position=task._target_position)
        obs = env.step(idle(env))
        assert (obs['reward'], obs['is_last']) == (1, False)
        assert env.step(idle(env))['reward'] == 0


@pytest.mark.parametrize('walker', ['ant', 'quadruped'])
def test_falling_on_the_back_is_terminal(walker):
    env = envs.make(f'loconav_{walker}_maze_s', size=(16, 16))
    env.step(idle(env))
    physics, task = raw(env).physics, raw(env).task
    with physics.reset_context():
        task._walker.set_pose(physics, quaternion=[0, 1, 0, 0])
    obs = env.step(idle(env))
    assert (obs['is_last'], obs['is_terminal']) == (True, True)


@pytest.mark.parametrize(('rate', 'steps'), [('', 25), ('_20hz', 10)])
def test_the_time_limit_is_not_terminal(rate, steps):
    env = envs.make(f'loconav_ant_maze_s{rate}', size=(16, 16), seconds=0.499)
    seen = playing.play(
        env, 2 * steps + 2, policy=lambda step: {'action': np.zeros(8, np.float32)}
    )
    assert playing.ends(seen) == ([steps, 2 * steps + 1], [])


def test_repeat_and_coverage():
    env = envs.make('loconav_ant_empty', size=(16, 16), repeat=5, seconds=0.499)
    seen = playing.play(env, 12)
    assert playing.ends(seen) == ([5, 11], [])
    env = envs.make('loconav_ant_empty', size=(16, 16))
    env.step(idle(env))
    for count, place in enumerate([(0, 0), (3, 3), (0, 0), (-3, 3)]):
        physics, task = raw(env).physics, raw(env).task
        with physics.reset_context():
            task._walker.set_pose(physics, position=(*place, 1))
        got = env.step(idle(env))['log/coverage']
        assert got <= count + 2
    assert 3 <= got <= 4  # the start may be one of them
    assert env.step({**idle(env), 'reset': np.bool_(True)})['log/coverage'] == 1


def test_another_camera_is_logged():
    env = envs.make('loconav_ant_maze_s', size=(32, 48), camera=0)
    obs = playing.play(env, 2)[1]
    assert obs['log/image'].shape == obs[EYES].shape == (32, 48, 3)
    assert not np.array_equal(obs['log/image'], obs[EYES])


@pytest.mark.parametrize('task', ['ant_maze_m', 'quadruped_empty'])
def test_seeds(task):
    make = lambda seed: envs.make(f'loconav_{task}', size=(16, 16), seed=seed)
    playing.differ(make, steps=3, resets=[2])


@pytest.mark.parametrize('task', ['ant_maze_q', 'anti_maze_m', 'ant_maze_m_5hz', 'ant'])
def test_unknown_tasks_are_named(task):
    with pytest.raises(embodied.UserError, match=rf'loconav_{task}.*expected'):
        envs.make(f'loconav_{task}')


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'loconav', 'debug', steps=24)
