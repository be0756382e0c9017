"""Environments with the interface of dm_env, the real package with toys behind it."""

import numpy as np
import pytest

import embodied
from embodied import envs, wrappers
from embodied.envs.dm import FromDM
from tests.envs import playing, toys

pytestmark = pytest.mark.suites
TASK = 'dm_tests.envs.toys:timer'


def test_values_arrive_with_names_and_types():
    env = wrappers.wrap(envs.make(TASK))
    zero = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    for count in range(3):
        obs = env.step(zero)
        assert {k: (v.dtype, v.shape) for k, v in obs.items() if k not in FLAGS} == {
            'image': (np.uint8, (4, 6, 3)), 'half': (np.float32, ()),
            'double': (np.float32, (2,)), 'flag': (bool, ()), 'near': (np.int32, (2,)),
            'far': (np.float32, ()),
        }  # fmt: skip
        assert obs['image'].max() == count
        assert (obs['half'], obs['flag'], obs['far']) == (count / 2, count % 2, 1000 * count)
        assert obs['near'].tolist() == [count, 4]
    assert env.obs_space['near'].classes.tolist() == [5, 5]


FLAGS = ('reward', 'is_first', 'is_last', 'is_terminal')


@pytest.mark.parametrize(('value', 'push'), [(-1, 0), (0, 400), (1, 800)])
def test_actions_reach_the_environment_in_its_own_ranges(value, push):
    env = wrappers.wrap(envs.make(TASK))
    act = {
        'move': np.int32(2), 'start': np.int32([0, 2]),
        'push': np.float32([value, 7.5]), 'reset': np.bool_(False),
    }  # fmt: skip
    env.step(act)
    env.step(act)
    got = env._env.actions[-1]
    assert got['move'] == 2
    assert got['start'].tolist() == [1, 3]
    assert got['push'].tolist() == [push, 7.5]
    assert {k: v.dtype for k, v in got.items()} == {
        'move': np.int32, 'start': np.int64, 'push': np.float64, 'none': np.float64,
    }  # fmt: skip


@pytest.mark.parametrize('discount', [0.0, 1.0, 0.5])
def test_only_discount_zero_is_terminal(discount):
    env = FromDM(toys.timer(0, 5, discount))
    seen = playing.play(env, 200, resets=[50])
    last, terminal = playing.ends(seen)
    assert last[:9] == [5, 11, 17, 23, 29, 35, 41, 47, 55]
    assert terminal == (last if discount == 0 else [])
    assert [float(x['reward']) for x in seen[:7]] == [0, 1, 1, 1, 1, 2, 0]


def test_seeds():
    playing.differ(lambda seed: envs.make(TASK, seed=seed))


@pytest.mark.parametrize(
    ('task', 'words'),
    [
        ('dm_tests.envs.toys:pair', '2 agents'),
        ('dm_tests.envs.toys', 'dm_module:function'),
        ('dm_tests.envs.toys:none', 'none'),
        ('dm_no_such_module:none', 'no_such_module'),
    ],
)
def test_what_cannot_be_made_is_said(task, words):
    with pytest.raises(embodied.UserError, match=words):
        envs.make(task)


def test_a_plain_environment():
    import dm_env
    from dm_env import specs

    class Plain(dm_env.Environment):
        def observation_spec(self):
            return specs.Array((3,), np.float32)

        def action_spec(self):
            return specs.DiscreteArray(4)

        def reset(self):
            return dm_env.restart(np.zeros(3, np.float32))

        def step(self, action):
            assert action in range(4)
            return dm_env.truncation(1.0, np.ones(3, np.float32))

    env = FromDM(Plain())
    assert (*env.obs_space,)[:1] == ('observation',)
    seen = playing.play(env, 6)
    assert playing.ends(seen) == ([1, 3, 5], [])
    assert seen[1]['observation'].tolist() == [1, 1, 1]


def test_masks_keep_their_range_and_what_is_not_declared_is_named(capsys):
    raw = toys.timer()
    specs, obs = raw.observation_spec(), raw.obs
    mask = type(specs['image'])((4, 6, 3), np.uint8, 0, 1)
    raw.observation_spec = lambda: {**specs, 'mask': mask}
    raw.obs = lambda: {**obs(), 'mask': np.ones((4, 6, 3), np.uint8), 'speed': 3.0}
    env = wrappers.wrap(FromDM(raw))
    assert embodied.spaces.bounds(env.obs_space['mask'])[1].max() == 1
    zero = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    assert env.step(zero).keys() == env.obs_space.keys()
    assert "returns ['speed'] beside" in capsys.readouterr().out
