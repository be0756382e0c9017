"""Gymnasium environments: ids, spaces, and the two ways to end."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

import dreamerv3
import embodied
from embodied import envs
from embodied.core import wrappers
from embodied.envs import gym as adapter
from embodied.envs import gymspaces
from tests.envs import playing


class Fake(gymnasium.Env):
    """Shows a fixed observation, and keeps the seeds and actions that it was given."""

    def __init__(self, obs_space, act_space, obs, ends=(False, False)):
        self.observation_space = obs_space
        self.action_space = act_space
        self.obs = obs
        self.ends = ends
        self.seeds = []
        self.actions = []

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        return self.obs, {}

    def step(self, action):
        assert action in self.action_space
        self.actions.append(action)
        return self.obs, 1.5, *self.ends, {}


def fake(obs_space=None, act_space=None, obs=None, **kwargs):
    obs_space = gs.Box(-1, 1, (2,)) if obs_space is None else obs_space
    act_space = gs.Discrete(3) if act_space is None else act_space
    env = Fake(obs_space, act_space, obs, **kwargs)
    env.obs = obs_space.sample() if obs is None else obs
    return env, wrappers.wrap(adapter.FromGym(env, seed=7))


def act(env, **values):
    """An action of zeros but for some keys."""
    zeros = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    return {**zeros, **{k.replace('__', '/'): v for k, v in values.items()}}


def first(obs_space, obs):
    """The first observation of an environment that shows obs, without the flags."""
    _, env = fake(obs_space, obs=obs)
    result = env.step(act(env))
    assert result.pop('is_first')
    return {k: v for k, v in result.items() if k not in ('reward', 'is_last', 'is_terminal')}


def decoded(act_space, **values):
    """The action that an environment receives."""
    inner, env = fake(act_space=act_space)
    env.step(act(env))
    env.step(act(env, **values))
    return inner.actions[0]


@pytest.mark.parametrize(
    ('ends', 'flags'),
    [
        ((False, False), (False, False)),
        ((True, False), (True, True)),
        ((False, True), (True, False)),
        ((True, True), (True, True)),
    ],
)
def test_terminated_and_truncated_stay_apart(ends, flags):
    inner, env = fake(ends=ends)
    env.step(act(env))
    obs = env.step(act(env))
    assert (obs['is_last'], obs['is_terminal']) == flags
    assert obs['reward'] == 1.5
    assert obs['reward'].dtype == np.float32
    assert env.step(act(env))['is_first'] == flags[0]
    assert inner.seeds == [7, None][: 1 + flags[0]]


def test_plain_names():
    assert first(
        gs.Box(0, 255, (8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    ).keys() == {'image'}
    assert first(gs.Box(0, 255, (8,), np.uint8), np.zeros(8, np.uint8)).keys() == {'vector'}
    assert first(gs.Discrete(4), 3) == {'vector': 3}
    _, env = fake()
    assert env.act_space.keys() == {'action', 'reset'}


def test_discrete_with_a_start():
    assert first(gs.Discrete(3, start=5), 7) == {'vector': 2}
    assert decoded(gs.Discrete(3, start=-1), action=np.int32(2)) == 1


def test_multidiscrete_observation_is_one_key():
    (obs,) = first(gs.MultiDiscrete([4, 2], start=[1, 0]), np.array([4, 1])).values()
    np.testing.assert_array_equal(obs, [3, 1])


def test_multidiscrete_action_with_equal_counts_is_one_key():
    space = gs.MultiDiscrete([[3, 3], [3, 3]], start=[[0, 1], [2, 3]])
    got = decoded(space, action=np.array([[0, 1], [2, 0]], np.int32))
    np.testing.assert_array_equal(got, [[0, 2], [4, 3]])


def test_multidiscrete_action_with_unequal_counts_is_split():
    space = gs.MultiDiscrete([3, 5], start=[1, 0])
    _, env = fake(act_space=space)
    assert {k: v.classes for k, v in env.act_space.items()} == {
        'action/0': 3, 'action/1': 5, 'reset': 2,
    }  # fmt: skip
    got = decoded(space, action__0=np.int32(2), action__1=np.int32(4))
    np.testing.assert_array_equal(got, [3, 4])


def test_multibinary():
    assert first(gs.MultiBinary(3), np.array([0, 1, 1], np.int8))['vector'].tolist() == [
        0,
        1,
        1,
    ]
    got = decoded(gs.MultiBinary(2), action=np.array([1, 0], np.int32))
    np.testing.assert_array_equal(got, [1, 0])


def test_nested_observation_is_flat():
    space = gs.Dict(
        {
            'camera': gs.Box(0, 255, (8, 8, 3), np.uint8),
            'arm': gs.Dict({'pos': gs.Box(-1, 1, (2,)), 'flags': gs.MultiBinary(2)}),
            'pair': gs.Tuple((gs.Discrete(3), gs.Box(-np.inf, np.inf, (), np.float64))),
        }
    )
    obs = first(space, space.sample())
    assert set(obs) == {'camera', 'arm/pos', 'arm/flags', 'pair/0', 'pair/1'}
    assert obs['pair/1'].dtype == np.float32


def test_tuple_observation():
    assert first(gs.Tuple((gs.Discrete(32), gs.Discrete(2))), (30, 1)) == {
        'obs/0': 30,
        'obs/1': 1,
    }


def test_nested_action_is_built_again():
    space = gs.Dict(
        {
            'move': gs.Tuple((gs.Discrete(3, start=1), gs.Box(-2, 2, (1,)))),
            'none': gs.Box(0, 1, (0,)),
            'jump': gs.Discrete(2),
        }
    )
    got = decoded(
        space, move__0=np.int32(2), move__1=np.array([0.5], np.float32), jump=np.int32(1)
    )
    assert got['move'][0] == 3
    assert got['move'][1] == np.float32(1.0)  # from [-1, 1] to [-2, 2]
    assert got['jump'] == 1
    assert got['none'].shape == (0,)


def test_arrays_without_entries_are_left_out():
    space = gs.Dict({'empty': gs.Box(-1, 1, (3, 0)), 'full': gs.Box(-1, 1, (1,))})
    assert first(space, space.sample()).keys() == {'full'}


def test_small_ranges_of_integers_are_classes_from_0():
    space = gs.Box(np.array([-2, 5]), np.array([2, 6]), dtype=np.int64)
    obs = first(space, np.array([-2, 6]))['vector']
    np.testing.assert_array_equal(obs, [0, 1])
    assert obs.dtype == np.int32
    got = decoded(space, action__0=np.int32(4), action__1=np.int32(0))
    np.testing.assert_array_equal(got, [2, 5])


def test_wide_ranges_of_integers_are_numbers():
    info = np.iinfo(np.int64)
    space = gs.Box(info.min, info.max, (2,), np.int64)
    obs = first(space, np.array([-(2**40), 12]))['vector']
    np.testing.assert_array_equal(obs, np.array([-(2.0**40), 12], np.float32))
    got = decoded(gs.Box(0, 1000, (1,), np.int32), action=np.array([0.2004], np.float32))
    np.testing.assert_array_equal(got, [600])


def test_unbounded_action_passes_and_bounded_ones_stay_inside():
    got = decoded(gs.Box(-np.inf, np.inf, (1,)), action=np.array([12.5], np.float32))
    assert got == 12.5
    third = gs.Box(-1 / 3, 1 / 3, (1,), np.float64)  # not a float32
    assert decoded(third, action=np.array([9.0], np.float32)) == third.high


def test_float64_bounds_hold_in_float32():
    space = gs.Box(0.1, 1 / 3, (2,), np.float64)
    np.testing.assert_array_equal(
        first(space, np.array([0.1, 1 / 3]))['vector'], np.array([0.1, 1 / 3], np.float32)
    )


@pytest.mark.parametrize(
    ('space', 'value', 'words'),
    [
        (gs.Box(0, 255, (8, 8, 3), np.uint8), np.zeros((8, 8, 3)), r"'image'.*float64"),
        (
            gs.Box(0, 1, (1, 1, 2), np.uint8),
            np.uint8([[[1, 2]]]),
            r'1\) is 2, .* 0 to 1',
        ),
        (gs.Discrete(5), 2**32 + 1, r"'vector'.*int64"),  # would be 1 in int32
        (gs.Discrete(5), 2.5, r"'vector'.*float64.*2\.5"),
        (gs.MultiDiscrete([5, 5]), np.array([4, 5]), r'entry 1 is 5, expected from 0 to 4'),
        (gs.Box(-9, 9, (2,), np.float64), np.array([0, 1e39]), r'1e\+39, which does not fit'),
        (gs.Box(-9, 9, (2,), np.float64), np.array([0, np.inf]), r'entry 1 is inf.*not finite'),
    ],
)
def test_an_observation_outside_of_its_space_is_named(space, value, words):
    with pytest.raises(embodied.UserError, match=words):
        first(space, value)


def test_a_reward_that_float32_cannot_hold_is_named():
    inner, env = fake()
    env.step(act(env))
    inner.step = lambda action: (inner.obs, 1e300, False, False, {})
    with pytest.raises(embodied.UserError, match=r"'reward'.*1e\+300, which does not fit"):
        env.step(act(env))


class Lander(gymnasium.Env):
    """Leaves the declared bounds of its second entry, as LunarLander does when it climbs."""

    observation_space = gs.Box(np.float32([-2.5, -2.5, 0]), np.float32([2.5, 2.5, 1]))
    action_space = gs.Discrete(4)

    def reset(self, seed=None, options=None):
        self.height = np.float32(2.0)
        return np.float32([0, self.height, 1]), {}

    def step(self, action):
        self.height += np.float32(0.1)
        return np.float32([0, self.height, 1]), 0.0, self.height > 3, False, {}


@pytest.mark.parametrize('strict', [False, True])
def test_a_run_goes_on_beyond_declared_bounds_unless_they_are_strict(tmp_path, capsys, strict):
    flags = {'steps': 60, 'envs': 2, 'strict_spaces': strict}
    train = lambda: dreamerv3.train(
        Lander, tmp_path, ['debug'], random_agent=True, run=flags, logger={'outputs': ['jsonl']}
    )
    words = r"Observation 'vector' is .*entry 1 is 2\.\d+, expected from -2\.5 to 2\.5"
    if strict:
        with pytest.raises(embodied.UserError, match=r'Env 0, step \d+: ' + words):
            train()
    else:
        train()
        out = capsys.readouterr().out
        assert len(re.findall(f'Warning: {words}', out)) == out.count('Warning') == 1
        assert (tmp_path / 'scores.jsonl').read_text().count('score') >= 4


def test_values_beside_the_space_are_named(capsys):
    space = gs.Dict({'a': gs.Discrete(2), 'in': gs.Dict({'b': gs.Tuple((gs.Discrete(3),))})})
    value = {'a': 1, 'speed': 2.0, 'in': {'b': (2, 'more'), 'deep': None}}
    assert first(space, value) == {'a': 1, 'in/b/0': 2}
    out = capsys.readouterr().out
    assert "returns ['in/b/1', 'in/deep', 'speed'] beside" in out


@pytest.mark.parametrize(
    ('space', 'key'),
    [
        ({'a': gs.Dict({'b': gs.Discrete(2)}), 'a/b': gs.Discrete(3)}, 'a/b'),
        ({'a': gs.Tuple((gs.Discrete(2),)), 'a/0': gs.Discrete(3)}, 'a/0'),
        ({'a': gs.MultiDiscrete([2, 3]), 'a/1': gs.Discrete(3)}, 'a/1'),
        ({'x': gs.Dict({'1': gs.Discrete(2), 1: gs.Discrete(3)})}, 'x/1'),
    ],
)
def test_entries_that_would_share_a_name_are_refused(space, key):
    with pytest.raises(embodied.UserError, match=f'both be named {key!r}'):
        fake(act_space=gs.Dict(space))
    if 'a/1' not in space:  # only actions are split
        with pytest.raises(embodied.UserError, match=f'both be named {key!r}'):
            fake(gs.Dict(space))


def test_whole_numbers_as_keys_become_text():
    space = gs.Dict({3: gs.Discrete(4), 'in': gs.Dict({7: gs.Discrete(9)})})
    assert first(space, {3: 1, 'in': {7: 8}}) == {'3': 1, 'in/7': 8}
    assert decoded(space, **{'3': np.int32(2), 'in__7': np.int32(5)}) == {3: 2, 'in': {7: 5}}


@pytest.mark.parametrize('acting', [False, True])
def test_more_classes_than_int32_counts_are_refused(acting):
    space = gs.Discrete(2**40)
    with pytest.raises(embodied.UserError, match=r"'(vector|action)' has 1,099,511,627,776 cl"):
        fake(**{'act_space' if acting else 'obs_space': space})


def test_images_keep_their_declared_range():
    high = np.tile(np.uint8([255, 1]), (4, 4, 1))
    mixed = gs.Box(0 * high, high, dtype=np.uint8)
    space = gs.Dict({'mask': gs.Box(2, 7, (4, 4, 1), np.uint8), 'mixed': mixed})
    _, env = fake(space)
    bounds = {k: embodied.spaces.bounds(env.obs_space[k]) for k in space.spaces}
    assert (bounds['mask'][0].max(), bounds['mask'][1].min()) == (2, 7)
    np.testing.assert_array_equal(bounds['mixed'][1], high)


def test_an_action_that_looks_like_an_image_is_one_of_classes():
    got = decoded(gs.Box(2, 5, (1, 1, 2), np.uint8), action=np.int32([[[0, 3]]]))
    np.testing.assert_array_equal(got, np.uint8([[[2, 5]]]))


def test_observations_are_copies():
    image = np.zeros((8, 8, 3), np.uint8)
    obs = first(gs.Box(0, 255, (8, 8, 3), np.uint8), image)
    image[:] = 9
    assert obs['image'].max() == 0


@pytest.mark.parametrize(
    'space',
    [gs.Text(5), gs.Sequence(gs.Discrete(2)), gs.Graph(gs.Box(-1, 1, (2,)), None)],
)
def test_spaces_without_fixed_shape_are_refused(space):
    with pytest.raises(embodied.UserError, match=r"'arm/word'.*expected Box"):
        gymspaces.codec(gs.Dict({'arm': gs.Dict({'word': space})}), 'vector')


@pytest.mark.parametrize('key', ['reward', 'is_first', 'action', 'stepid'])
def test_reserved_keys_are_refused(key):
    with pytest.raises(embodied.UserError, match=f'{key!r}'):
        fake(gs.Dict({key: gs.Box(-1, 1, (1,))}))


@pytest.mark.parametrize(
    'task',
    ['CartPole-v1', 'Pendulum-v1', 'Taxi-v4', 'Blackjack-v1', 'MountainCarContinuous-v0'],
)
def test_built_in_ids_play(task):
    env = wrappers.wrap(envs.make(f'gym_{task}', seed=1))
    rng = np.random.default_rng(0)
    ends = 0
    for step in range(300):
        values = {
            k: embodied.spaces.sample(v, rng) for k, v in env.act_space.items() if k != 'reset'
        }
        obs = env.step({**values, 'reset': step == 0})
        ends += obs['is_last']
    assert obs['reward'].dtype == np.float32
    assert ends >= (task in ('CartPole-v1', 'Pendulum-v1', 'Blackjack-v1'))
    env.close()


def test_seeds():
    starts = [envs.make('gym_CartPole-v1', seed=s) for s in (1, 1, 2)]
    obs = [env.step({'action': 0, 'reset': True})['vector'] for env in starts]
    np.testing.assert_array_equal(obs[0], obs[1])
    assert not np.array_equal(obs[0], obs[2])


@pytest.mark.parametrize(
    ('task', 'words'),
    [
        ('CartPole-v1x', ('CartPole-v1x', 'CartPole-v1')),
        ('NoSuchThing', ('NoSuchThing',)),
        ('Taxi-v9', ('Taxi-v9', 'Taxi-v4')),
        ('nosuchmodule:Env-v0', ('nosuchmodule', 'install')),
        ('HalfCheetah-v5', ('HalfCheetah-v5', 'pip install')),
    ],
)
def test_ids_that_cannot_be_made(task, words):
    with pytest.raises(embodied.UserError) as caught:
        envs.make(f'gym_{task}')
    assert all(word in str(caught.value) for word in words), caught.value


class Old:
    """The old interface: reset gives the observation alone, step four values."""

    observation_space = gs.Box(-1, 1, (2,))
    action_space = gs.Discrete(3, start=1)

    def __init__(self, length=4, truncated=False):
        self.length = length
        self.truncated = truncated
        self.actions = []
        self.rng = np.random.default_rng()

    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        self.count = 0
        return self.rng.random(2, np.float32)

    def step(self, action):
        assert action in self.action_space
        self.actions.append(int(action))
        self.count += 1
        info = {'TimeLimit.truncated': True} if self.truncated else {}
        return np.zeros(2, np.float32), 1.0, self.count >= self.length, info

    def close(self):
        pass


class OldInside(Old, gymnasium.Env):
    """The same as a class of Gymnasium's, which its own wrappers cannot reset."""

    def seed(self, seed=None):
        return super().seed(seed)


@pytest.mark.parametrize('truncated', [False, True])
def test_the_old_interface_is_adapted(truncated):
    env = adapter.FromGym(Old(truncated=truncated), seed=3)
    seen = playing.play(env, 200, resets=[52])
    last, terminal = playing.ends(seen)
    assert last[:3] == [4, 9, 14]
    assert terminal == ([] if truncated else last)
    assert {*env._env.actions} == {1, 2, 3}
    playing.differ(lambda seed: adapter.FromGym(Old(), seed), steps=1)


@pytest.mark.parametrize('kind', [Old, OldInside])
@pytest.mark.parametrize('limit', [None, 3])
def test_the_old_interface_may_be_registered(kind, limit):
    name = f'Test{kind.__name__}{limit}-v0'
    gymnasium.register(name, kind, max_episode_steps=limit, kwargs={'length': 5})
    try:
        seen = playing.play(envs.make(f'gym_{name}', seed=1), 30)
    finally:
        del gymnasium.registry[name]
    last, terminal = playing.ends(seen)
    assert last[:2] == ([3, 7] if limit else [5, 11])
    assert terminal == ([] if limit else last)


def test_an_observation_that_looks_like_the_new_reset_stays_whole():
    env = Old()
    env.observation_space = gs.Tuple((gs.Discrete(2), gs.Dict({'x': gs.Discrete(3)})))
    env.reset = lambda: (1, {'x': 2})
    obs = adapter.FromGym(env).step({'action': np.int32(0), 'reset': True})
    assert (obs['obs/0'], obs['obs/1/x']) == (1, 2)


def test_a_new_environment_whose_reset_takes_no_seed():
    class Careless(gymnasium.Env):
        observation_space, action_space = gs.Discrete(3), gs.Discrete(2)

        def reset(self):
            return 2, {}

        def step(self, action):
            return 1, 1.0, True, False, {}

    seen = playing.play(adapter.FromGym(Careless()), 4)
    assert [int(x['vector']) for x in seen] == [2, 1, 2, 1]
    assert playing.ends(seen) == ([1, 3], [1, 3])


@pytest.mark.parametrize(
    'space',
    [
        gs.Discrete(3, start=1),
        gs.MultiDiscrete([3, 5], start=[1, -2]),
        gs.MultiDiscrete([[2, 2], [2, 2]]),
        gs.MultiBinary(4),
        gs.MultiBinary((2, 3)),
        gs.Box(0, 800, (2,)),
        gs.Box(-np.inf, np.inf, (2,)),
        gs.Box(np.float32([0, -np.inf]), np.float32([np.inf, 1])),
        gs.Box(-1 / 3, 1 / 3, (2,), np.float64),
        gs.Box(-0.1, 0.1, (), np.float16),
        gs.Box(0, 9, (3,), np.int64),
        gs.Box(0, 255, (2,), np.uint8),
        gs.Dict({'a': gs.Discrete(2), 'b': gs.Tuple((gs.Box(0, 5, (1,)), gs.MultiBinary(2)))}),
        gs.Tuple((gs.Discrete(4, start=2), gs.MultiDiscrete([2, 3]))),
    ],
)
def test_every_action_is_in_the_space_of_the_environment(space):
    """The double asserts that its action space contains what it is given."""
    inner, env = fake(act_space=space)
    playing.play(env, 200, wrap=False)
    assert len(inner.actions) == 199
    extremes = {
        k: np.full(v.shape, 1e9) for k, v in env.act_space.items() if v.dtype.kind == 'f'
    }
    for sign in (-1, 1):
        env.step(act(env, **{k: (sign * v).astype(np.float32) for k, v in extremes.items()}))


def test_all_classes_of_an_action_reach_the_environment():
    inner, env = fake(act_space=gs.Discrete(3, start=1))
    playing.play(env, 100, wrap=False)
    assert {int(x) for x in inner.actions} == {1, 2, 3}


@pytest.mark.parametrize(('value', 'wanted'), [(-1, 0), (0, 400), (1, 800)])
def test_bounded_actions_are_scaled(value, wanted):
    assert decoded(gs.Box(0, 800, (1,)), action=np.float32([value])) == wanted


def test_types_of_observations():
    values = {
        'f64': np.array([0.25, 0.5]), 'f16': np.float16([1.5]), 'i64': np.array([2**33]),
        'bool': np.array([True, False]), 'in': {'side': (np.array([7.0]), 3)},
    }  # fmt: skip
    space = gs.Dict(
        {
            'f64': gs.Box(-1, 1, (2,), np.float64),
            'f16': gs.Box(-2, 2, (1,), np.float16),
            'i64': gs.Box(-(2**40), 2**40, (1,), np.int64),
            'bool': gs.Box(0, 1, (2,), bool),
            'in': gs.Dict({'side': gs.Tuple((gs.Box(0, 9, (1,), np.float64), gs.Discrete(4)))}),
        }
    )
    obs = first(space, values)
    assert {k: (v.dtype, v.tolist()) for k, v in obs.items()} == {
        'f64': (np.float32, [0.25, 0.5]), 'f16': (np.float32, [1.5]),
        'i64': (np.float32, [2**33]), 'bool': (np.int32, [1, 0]),
        'in/side/0': (np.float32, [7.0]), 'in/side/1': (np.int32, 3),
    }  # fmt: skip
