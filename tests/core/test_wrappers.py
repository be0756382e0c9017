"""Wrappers between environment and driver."""

import elements
import numpy as np
import pytest

import embodied
from embodied import wrappers
from embodied.core import spaces
from tests.core.echo import EchoEnv, act
from tests.doubles import CounterEnv


def test_actions_are_normalised_where_both_bounds_are_finite():
    low, high = np.float32([0, -4, -np.inf, -3]), np.float32([10, -2, np.inf, np.inf])
    env = EchoEnv({}, {'a': elements.Space(np.float32, (4,), low, high)}, {})
    wrapped = wrappers.NormalizeAction(env)
    space = wrapped.act_space['a']
    np.testing.assert_array_equal(space.low, [-1, -1, -np.inf, -3])
    np.testing.assert_array_equal(space.high, [1, 1, np.inf, np.inf])
    for given, wanted in [
        ([-1, -1, 7, 7], [0, -4, 7, 7]),
        ([1, 1, -7, -7], [10, -2, -7, -7]),
        ([0.5, 0, 0, 0], [7.5, -3, 0, 0]),
    ]:
        wrapped.step(act(a=np.float32(given)))
        np.testing.assert_array_equal(env.actions[-1]['a'], np.float32(wanted))
        assert env.actions[-1]['a'].dtype == np.float32


def test_normalising_leaves_discrete_actions_and_reset_alone():
    env = CounterEnv()
    wrapped = wrappers.NormalizeAction(env)
    assert spaces.equal(wrapped.act_space['action'], env.act_space['action'])
    assert wrapped.step({'action': np.int32(3), 'reset': np.bool_(True)})['last'] == 3


def test_dtypes_become_float32_int32_uint8_and_bool():
    space = {
        'f64': elements.Space(np.float64, (2,), -0.1, 0.1),
        'f16': elements.Space(np.float16),
        'i64': elements.Space(np.int64, (), 0, 9),
        'u16': elements.Space(np.uint16),
        'free': elements.Space(np.int64),
        'u8': elements.Space(np.uint8, (2,)),
        'text': elements.Space(str),
    }
    obs = {
        'f64': np.array([-0.1, 0.1]), 'f16': np.float16(1.5), 'i64': 8, 'u16': np.uint16(65535),
        'free': -5, 'u8': np.uint8([0, 255]), 'text': 'word',
    }  # fmt: skip
    wrapped = wrappers.CheckSpaces(wrappers.UnifyDtypes(EchoEnv(space, {}, obs)))
    got = wrapped.step(act())
    kinds = {k: v.dtype for k, v in got.items()}
    wanted = {'f64': 'f4', 'f16': 'f4', 'i64': 'i4', 'u16': 'i4', 'free': 'i4', 'u8': 'u1'}
    assert {k: kinds[k] for k in wanted} == {k: np.dtype(v) for k, v in wanted.items()}
    assert {k: wrapped.obs_space[k].dtype for k in wanted} == {k: kinds[k] for k in wanted}
    assert (got['i64'], got['u16'], got['free'], got['text']) == (8, 65535, -5, 'word')
    np.testing.assert_array_equal(got['f64'], np.float32([-0.1, 0.1]))


@pytest.mark.parametrize(
    ('space', 'value'),
    [
        (elements.Space(np.int64, (), 0, 9), np.float64(2.5)),  # a float for an integer
        (elements.Space(np.int64), np.int64(2**40)),  # no int32 holds it
        (elements.Space(np.uint8, (), 0, 255), np.int64(300)),
        (elements.Space(np.float64), np.float64(1e300)),  # becomes inf
        (elements.Space(np.float32), np.float32(np.nan)),
        (elements.Space(bool), np.int64(1)),
    ],
)
def test_values_that_a_cast_would_change_are_refused(space, value):
    wrapped = wrappers.wrap(EchoEnv({'key': space}, {}, {'key': value}))
    with pytest.raises(embodied.UserError, match="Observation 'key' is outside of its space"):
        wrapped.step(act())


def test_bounds_beyond_float32_are_no_bounds():
    limit = np.finfo(np.float64).max
    space = elements.Space(np.float64, (), -limit, limit)
    wrapped = wrappers.wrap(EchoEnv({'key': space}, {}, {'key': np.float64(1e30)}))
    assert (wrapped.obs_space['key'].low, wrapped.obs_space['key'].high) == (-np.inf, np.inf)
    assert wrapped.step(act())['key'] == np.float32(1e30)


def test_actions_reach_the_environment_in_its_own_dtypes():
    space = {
        'cont': elements.Space(np.float64, (), 0, 10),
        'disc': elements.Space(np.int64, (), 0, 4),
        'small': elements.Space(np.uint16, (), 0, 4),
    }
    env = EchoEnv({}, space, {})
    wrapped = wrappers.wrap(env)
    wrapped.step(act(cont=np.float32(0.5), disc=np.int32(3), small=np.int32(2)))
    got = env.actions[-1]
    assert (got['cont'], got['disc'], got['small']) == (7.5, 3, 2)
    assert {k: v.dtype for k, v in got.items()} == {
        'cont': np.float64, 'disc': np.int64, 'small': np.uint16, 'reset': bool,
    }  # fmt: skip


def test_first_observation_outside_of_its_space_is_an_error():
    image = elements.Space(np.uint8, (4, 4, 3))
    bad = np.full((4, 4, 3), 0.5, np.float32)
    wrapped = wrappers.wrap(EchoEnv({'image': image}, {}, {'image': bad}))
    with pytest.raises(embodied.UserError) as info:
        wrapped.step({'reset': np.bool_(True)})
    assert str(info.value) == (
        "Observation 'image' is outside of its space: expected dtype uint8, "
        'shape (4, 4, 3), from 0 to 255, got dtype float32, shape (4, 4, 3), '
        'least 0.5, greatest 0.5.'
    )


def test_missing_and_unknown_keys_are_errors():
    env = EchoEnv({'key': elements.Space(np.float32)}, {}, {'other': np.float32(0)})
    wrapped = wrappers.wrap(env)
    with pytest.raises(embodied.UserError, match=r"Observation lacks.*\['key'\].*\['other'\]"):
        wrapped.step(act())
    with pytest.raises(embodied.UserError, match=r"Action lacks.*\[\].*\['jump'\]"):
        wrapped.step(act(jump=np.int32(0)))
    assert len(env.actions) == 1


def pose(value, space=None, strict=False, **more):
    """An observation with bounds of its own for each entry, as checked."""
    low, high = np.float32([-1, 0, -np.inf]), np.float32([1, 9, np.inf])
    space = space or {'pose': elements.Space(np.float32, (3,), low, high)}
    env = EchoEnv(space, {}, {'pose': value, **more})
    return wrappers.wrap(env, strict)


def test_floats_beyond_their_bounds_are_said_once_with_entry_value_and_bounds(capsys):
    wrapped = pose(np.float32([0, 9.6, 3]))
    for _ in range(3):
        np.testing.assert_array_equal(wrapped.step(act())['pose'], np.float32([0, 9.6, 3]))
    pose(np.float32([-2.1, 0, 0])).step(act())  # another environment of the same kind
    assert capsys.readouterr().out == (
        "Warning: Observation 'pose' is outside of its space: entry 1 is 9.6, expected from "
        '0.0 to 9.0. Bounds of numbers are used for nothing, so the run goes on '
        '(run.strict_spaces).\n'
    )
    with pytest.raises(embodied.UserError, match=r'entry 1 is 9\.6, expected from 0'):
        pose(np.float32([0, 9.6, 3]), strict=True).step(act())


@pytest.mark.parametrize(
    ('value', 'words'),
    [
        (np.float32([0, 1, np.inf]), 'entry 2 is inf, which is not finite'),
        (np.float32([np.nan, 1, 0]), 'entry 0 is nan, which is not finite'),
        (np.float32([-np.inf, 1, 0]), 'entry 0 is -inf, which is not finite'),
        (np.float64([0, 0, 1e39]), r'entry 2 is 1e\+39, which does not fit float32'),
        (np.float32([0, 1]), r'shape \(2,\)'),
        (np.array(['a', 'b', 'c']), 'dtype <U1'),
    ],
)
def test_what_is_no_number_or_of_another_form_stays_an_error(value, words):
    with pytest.raises(embodied.UserError, match=f"^Observation 'pose' .*{words}"):
        pose(value).step(act())


@pytest.mark.parametrize(
    ('space', 'value', 'words'),
    [
        (elements.Space(np.int32, (2, 2), 0, 5), np.int32([[0, 1], [2, 5]]), r'\(1, 1\) is 5'),
        (elements.Space(np.int64, (), 0, 5), np.int64(-1), 'it is -1, expected from 0 to 4'),
        (elements.Space(np.uint8, (1, 1, 2), 0, 2), np.uint8([[[1, 2]]]), r'\(0, 0, 1\) is 2'),
    ],
)
def test_whole_numbers_outside_stay_an_error(space, value, words):
    with pytest.raises(embodied.UserError, match=words):
        pose(value, {'pose': space}).step(act())


def test_observations_beside_the_space_are_left_out_and_said_once(capsys):
    more = {'speed': 3.0, 'other': np.zeros(2)}
    wrapped = pose(np.zeros(3), **more)
    seen = [wrapped.step(act()) for _ in range(2)]
    assert all(x.keys() == wrapped.obs_space.keys() for x in seen)
    out = capsys.readouterr().out
    assert out.startswith("Warning: The environment returns ['other', 'speed'] beside its")
    assert out.count('\n') == 1
    with pytest.raises(embodied.UserError, match=r"has \['other', 'speed'\] beyond its space"):
        pose(np.zeros(3), strict=True, **more).step(act())


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf, 1e300, 7.0])
def test_logged_numbers_may_be_anything(value, capsys):
    space = {'log/loss': elements.Space(np.float64, (), 0, 1)}
    wrapped = wrappers.wrap(EchoEnv(space, {}, {'log/loss': np.float64(value)}), strict=True)
    with np.errstate(over='ignore'):
        np.testing.assert_equal(wrapped.step(act())['log/loss'], np.float32(value))
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
    ('obs', 'acts', 'words'),
    [
        (('stepid',), (), "Observation 'stepid'"),
        (('consec',), (), "Observation 'consec'"),
        (('envid',), (), "Observation 'envid'"),
        ((), ('is_eval',), "Action 'is_eval'"),
        (('move',), ('move',), "Action 'move' has the name of an observation"),
        (('reset',), (), "Action 'reset' has the name of an observation"),
        ((), ('reward',), "Action 'reward' has the name"),
        ((), ('log/move',), "Action 'log/move' begins with log/"),
        ((3,), (), 'Observation 3 needs a name that is a text'),
        (('',), (), 'needs a name'),
    ],
)
def test_names_that_would_hide_others_are_refused(obs, acts, words):
    space = elements.Space(np.float32)
    env = EchoEnv(dict.fromkeys(obs, space), dict.fromkeys(acts, space), {})
    with pytest.raises(embodied.UserError, match=words):
        wrappers.wrap(env)


@pytest.mark.parametrize('key', ['reward', 'is_first', 'is_last', 'is_terminal', 'reset'])
@pytest.mark.parametrize('space', [None, elements.Space(np.int32), elements.Space(bool, (2,))])
def test_what_every_environment_has_is_asked_for(key, space):
    env = EchoEnv({}, {}, {})
    found = env._act_space if key == 'reset' else env._obs_space
    del found[key]
    found |= {} if space is None else {key: space}
    words = f'{key!r} must be one (float|bool).*; found {"none" if space is None else "dtype"}'
    with pytest.raises(embodied.UserError, match=words):
        wrappers.wrap(env)


def test_float_actions_are_clipped_and_discrete_ones_refused():
    space = {
        'cont': elements.Space(np.float32, (2,), np.float32([-2, -np.inf]), np.float32(2)),
        'disc': elements.Space(np.int32, (), 0, 5),
    }
    env = EchoEnv({}, space, {})
    wrapped = wrappers.wrap(env)
    wrapped.step(act(cont=np.float32([-5, 5]), disc=np.int32(0)))
    np.testing.assert_array_equal(env.actions[-1]['cont'], np.float32([-2, 2]))
    with pytest.raises(embodied.UserError, match="Action 'disc' is outside"):
        wrapped.step(act(cont=np.zeros(2, np.float32), disc=np.int32(5)))
    with pytest.raises(embodied.UserError, match="Action 'cont' is outside"):
        wrapped.step(act(cont=np.float32([0, np.nan]), disc=np.int32(0)))


def test_wrapping_an_exact_environment_changes_no_value():
    plain, wrapped = CounterEnv(image=True), wrappers.wrap(CounterEnv(image=True))
    for key, space in plain.obs_space.items():
        assert spaces.equal(space, wrapped.obs_space[key])
    for index in range(25):
        action = {'action': np.int32(index % 5), 'reset': np.bool_(index == 13)}
        first, second = plain.step(action), wrapped.step(action)
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])


def test_time_limit_ends_without_terminal_and_resets_next():
    env = wrappers.TimeLimit(CounterEnv(length=100), 3)
    seen = [env.step(act(action=np.int32(0))) for _ in range(9)]
    assert [int(x['step']) for x in seen] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [bool(x['is_last']) for x in seen] == [False, False, False, True] * 2 + [False]
    assert not any(x['is_terminal'] for x in seen)


def test_time_limit_keeps_a_real_end():
    env = wrappers.TimeLimit(CounterEnv(length=3), 3)
    seen = [env.step(act(action=np.int32(0))) for _ in range(4)]
    assert [bool(x['is_last']) for x in seen] == [False, False, True, False]
    assert [bool(x['is_terminal']) for x in seen] == [False, False, True, False]


def test_wrappers_pass_on_close_and_attributes():
    env = CounterEnv(env=7)
    wrapped = wrappers.wrap(env)
    assert wrapped.length == env.length
    wrapped.close()
    assert env.closed
    with pytest.raises(AttributeError):
        _ = wrapped.missing


@pytest.mark.parametrize('value', [np.nan, np.inf, 7])
def test_bounds_of_what_is_only_logged_do_not_matter(value):
    space = {'log/x': elements.Space(np.float32, (), -1, 1)}
    env = wrappers.wrap(EchoEnv(space, {}, {'log/x': np.float32(value), 'log/new': 'text'}))
    obs = env.step(act())
    np.testing.assert_equal(obs['log/x'], np.float32(value))
    assert obs['log/new'] == 'text'
    wrong = wrappers.wrap(EchoEnv(space, {}, {'log/x': np.float32([0, 0])}))
    with pytest.raises(embodied.UserError, match=r"'log/x'.*shape"):
        wrong.step(act())
