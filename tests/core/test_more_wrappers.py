"""Wrappers for adapters and users."""

import elements
import numpy as np
import pytest
from PIL import Image

import embodied
from embodied import spaces, wrappers
from tests.core.echo import EchoEnv, act
from tests.doubles import CounterEnv


def steps(env, count):
    return [env.step(act(action=np.int32(0))) for _ in range(count)]


def flags(seen, key):
    return [bool(x[key]) for x in seen]


def test_action_repeat_sums_rewards_in_every_episode():
    """10 raw steps in fours: steps of 4, 4 and 2 after each reset."""
    env = wrappers.ActionRepeat(CounterEnv(length=11), 4)
    seen = steps(env, 12)
    assert [float(x['reward']) for x in seen] == [0, 4, 4, 2] * 3
    assert [int(x['step']) for x in seen] == [0, 4, 8, 10] * 3
    assert flags(seen, 'is_first') == [True, False, False, False] * 3
    assert flags(seen, 'is_last') == [False, False, False, True] * 3
    assert flags(seen, 'is_terminal') == [False, False, False, True] * 3
    assert seen[1]['reward'].dtype == np.float32


def test_action_repeat_resets_once_on_demand():
    env = wrappers.ActionRepeat(CounterEnv(length=100), 3)
    steps(env, 2)
    obs = env.step({'action': np.int32(0), 'reset': np.bool_(True)})
    assert (obs['step'], obs['episode'], obs['is_first']) == (0, 1, True)
    with pytest.raises(embodied.UserError, match='not 0'):
        wrappers.ActionRepeat(CounterEnv(), 0)


def test_time_limit_counts_repeated_actions_once():
    env = wrappers.TimeLimit(wrappers.ActionRepeat(CounterEnv(length=100), 4), 2)
    seen = steps(env, 6)
    assert [int(x['step']) for x in seen] == [0, 4, 8] * 2
    assert flags(seen, 'is_last') == [False, False, True] * 2
    assert not any(flags(seen, 'is_terminal'))


@pytest.mark.parametrize('channels', [1, 3])
def test_images_are_resized_as_pillow_does(channels):
    image = np.random.default_rng(0).integers(0, 256, (6, 10, channels), np.uint8)
    space = {
        'image': elements.Space(np.uint8, (6, 10, channels)),
        'log/same': elements.Space(np.uint8, (4, 8, 3)),
        'vector': elements.Space(np.uint8, (6,)),
    }
    given = {
        'image': image,
        'log/same': np.zeros((4, 8, 3), np.uint8),
        'vector': image[:, 0, 0],
    }
    env = wrappers.CheckSpaces(wrappers.ResizeImage(EchoEnv(space, {}, given), (4, 8)))
    obs = env.step(act())
    assert {k: v.shape for k, v in env.obs_space.items() if k in space} == {
        'image': (4, 8, channels), 'log/same': (4, 8, 3), 'vector': (6,),
    }  # fmt: skip
    for channel in range(channels):
        wanted = Image.fromarray(image[..., channel]).resize((8, 4), Image.BILINEAR)
        np.testing.assert_array_equal(obs['image'][..., channel], np.asarray(wanted))
    assert obs['log/same'] is given['log/same']


def test_resized_images_keep_the_range_of_each_channel():
    high = np.tile([256, 2], (6, 10, 1))
    mask = np.zeros((6, 10, 2), np.uint8)
    mask[:, 5:] = [255, 1]
    env = EchoEnv({'mask': elements.Space(np.uint8, (6, 10, 2), 0, high)}, {}, {'mask': mask})
    env = wrappers.CheckSpaces(wrappers.ResizeImage(env, (3, 4)))
    low, last = spaces.bounds(env.obs_space['mask'])
    assert (low.tolist(), last.tolist()) == ([[[0, 0]] * 4] * 3, [[[255, 1]] * 4] * 3)
    assert {*env.step(act())['mask'][..., 1].flat} == {0, 1}


def test_flat_images_stay_flat_in_value():
    obs = np.full((64, 96, 3), 77, np.uint8)
    env = EchoEnv({'image': elements.Space(np.uint8, obs.shape)}, {}, {'image': obs})
    image = wrappers.ResizeImage(env, (48, 32)).step(act())['image']
    assert image.shape == (48, 32, 3)
    assert (image == 77).all()


def test_unknown_ways_to_resize_are_refused():
    env = EchoEnv({'image': elements.Space(np.uint8, (4, 4, 3))}, {}, {})
    with pytest.raises(embodied.UserError, match="pillow or opencv; found 'cubic'"):
        wrappers.ResizeImage(env, (8, 8), 'cubic')


def test_two_axes_become_one():
    space = {
        'pair': elements.Space(
            np.float32, (2, 3), np.zeros((2, 3)), np.arange(6).reshape(2, 3)
        ),
        'image': elements.Space(np.uint8, (2, 3, 1)),
        'line': elements.Space(np.float32, (4,)),
    }
    given = {
        'pair': np.arange(6, dtype=np.float32).reshape(2, 3),
        'image': np.zeros((2, 3, 1), np.uint8),
        'line': np.zeros(4, np.float32),
    }
    env = wrappers.CheckSpaces(wrappers.FlattenTwoDimObs(EchoEnv(space, {}, given)))
    obs = env.step(act())
    assert obs['pair'].tolist() == [0, 1, 2, 3, 4, 5]
    assert env.obs_space['pair'].high.tolist() == [0, 1, 2, 3, 4, 5]
    assert (obs['image'].shape, obs['line'].shape) == ((2, 3, 1), (4,))


def test_a_constant_is_added():
    space = elements.Space(np.int32, (), 0, 5)
    env = wrappers.CheckSpaces(wrappers.AddObs(CounterEnv(), 'task', np.int32(3), space))
    assert [int(x['task']) for x in steps(env, 3)] == [3, 3, 3]
    with pytest.raises(embodied.UserError, match="already has an observation 'step'"):
        wrappers.AddObs(CounterEnv(), 'step', np.int32(3), space)
    with pytest.raises(embodied.UserError, match="'task' is outside"):
        wrappers.AddObs(CounterEnv(), 'task', np.int32(5), space)


def test_backward_return_discounts_the_rewards_so_far():
    env = wrappers.CheckSpaces(wrappers.BackwardReturn(CounterEnv(length=4), 2))
    got = [float(x['bwreturn']) for x in steps(env, 8)]
    assert got == [0, 1, 1.5, 1.75] * 2  # 1, 0.5 + 1, 0.25 + 0.5 + 1
    with pytest.raises(embodied.UserError, match='horizon'):
        wrappers.BackwardReturn(CounterEnv(), 0)


def test_floats_are_cut_into_bins():
    space = {'action': elements.Space(np.float64, (2,), [0, -4], [10, 4]), 'other': FREE}
    env = EchoEnv({}, space, {})
    wrapped = wrappers.CheckSpaces(wrappers.DiscretizeAction(env, bins=5))
    assert wrapped.act_space['action'].classes.tolist() == [5, 5]
    for index, value in [((0, 0), (0, -4)), ((4, 4), (10, 4)), ((1, 3), (2.5, 2))]:
        wrapped.step(act(action=np.int32(index), other=np.float32(1.5)))
        assert env.actions[-1]['action'].tolist() == list(value)
        assert env.actions[-1]['action'].dtype == np.float64
        assert env.actions[-1]['other'] == np.float32(1.5)
    with pytest.raises(embodied.UserError, match="'other' must be a float between finite"):
        wrappers.DiscretizeAction(env, 'other')
    with pytest.raises(embodied.UserError, match='2 bins'):
        wrappers.DiscretizeAction(env, bins=1)


FREE = elements.Space(np.float32)


class Fragile(CounterEnv):
    """Raises at the steps of its life that are in `faults`, which each happen once."""

    faults: set = set()  # noqa: RUF012
    made = 0

    def __init__(self):
        super().__init__(length=4)
        type(self).made += 1

    def step(self, action):
        obs = super().step(action)
        if (self.made, self.step_index) in self.faults:
            raise self.error
        return obs


def fragile(faults, error):
    return type('Fragile', (Fragile,), {'faults': set(faults), 'error': error, 'made': 0})


def test_an_environment_that_raises_is_made_anew(capsys):
    kind = fragile([(1, 2), (2, 1)], KeyError('lost'))
    env = wrappers.RestartOnException(kind, wait=0.0)
    seen = steps(env, 8)
    assert [int(x['step']) for x in seen] == [0, 1, 0, 0, 1, 2, 3, 0]
    assert flags(seen, 'is_first') == [x['step'] == 0 for x in seen]
    assert kind.made == 3
    assert capsys.readouterr().out.count("made anew after KeyError: 'lost'") == 2


def test_too_many_failures_are_raised():
    kind = fragile([(1, 0), (2, 0), (3, 0)], KeyError('lost'))
    env = wrappers.RestartOnException(kind, maxfails=2, wait=0.0)
    with pytest.raises(KeyError, match='lost'):
        steps(env, 1)
    assert kind.made == 3


@pytest.mark.parametrize('error', [embodied.UserError('mine'), ValueError('other')])
def test_other_errors_and_those_of_a_user_are_raised(error):
    exceptions = (KeyError, embodied.UserError)
    env = wrappers.RestartOnException(fragile([(1, 0)], error), exceptions, wait=0.0)
    with pytest.raises(ValueError, match=str(error)):
        steps(env, 1)
