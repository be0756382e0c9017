"""What Gymnasium environments are and return: mistakes are one sentence, at once."""

import functools
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

from embodied.core import wrappers
from embodied.core.errors import UserError
from embodied.envs import gym as adapter
from embodied.run.driver import Driver

ZEROS = np.zeros(2, np.float32)


class Toy(gymnasium.Env):
    """Returns what it is told to."""

    def __init__(self, obs=ZEROS, reset=None, step=None, space=None):
        self.observation_space = space or gs.Box(-1, 1, (2,))
        self.action_space = gs.Discrete(3)
        self._reset = (obs, {}) if reset is None else reset
        self._step = (obs, 1.0, False, False, {}) if step is None else step

    def reset(self, *, seed=None, options=None):
        return None if isinstance(self._reset, str) else self._reset

    def step(self, action):
        return None if isinstance(self._step, str) else self._step


def make(**kwargs):
    return wrappers.wrap(adapter.FromGym(Toy(**kwargs)))


def play(env, steps=2):
    for _ in range(steps):
        obs = env.step({'action': np.int32(0), 'reset': np.bool_(False)})
    return obs


def error(**kwargs):
    with pytest.raises(UserError) as caught:
        play(make(**kwargs))
    return str(caught.value)


FIVE = r'\(observation, reward, terminated, truncated, info\)'
RESULTS = {
    'None': ('None', f'Toy.step returned None; expected {FIVE}'),
    'two': ((ZEROS, 0.0), 'returned a tuple of 2 values; expected'),
    'three': ((ZEROS, 0.0, False), 'returned a tuple of 3 values; .* as in the old Gym'),
    'six': ((ZEROS, 0.0, False, False, {}, 1), 'a tuple of 6 values'),
    'no info': ((ZEROS, 0.0, False, False), r'4 values, the last of which is False; .*old Gym'),
    'info': ((ZEROS, 0.0, False, False, 'x'), r"the last of which is text \('x'\)"),
    'array': (ZEROS, r'step returned float32 of shape \(2,\); expected'),
    'rewards': ((ZEROS, np.ones(2), False, False, {}),
                r'a reward that is float64 of shape \(2,\); expected one number'),
    'reward None': ((ZEROS, None, False, False, {}), 'a reward that is None'),
    'reward text': ((ZEROS, '1', False, False, {}), r"a reward that is text \('1'\)"),
    'ends': ((ZEROS, 0.0, np.zeros(2, bool), False, {}),
             r'a terminated that is bool of shape \(2,\); expected True or False'),
    'end None': ((ZEROS, 0.0, False, None, {}), 'a truncated that is None'),
    'end dict': ((ZEROS, 0.0, {'__all__': False}, False, {}), 'a terminated that is a dict'),
    'done': ((ZEROS, 0.0, [True, False], {}), 'a done that is a list of 2 values'),
}  # fmt: skip


@pytest.mark.parametrize(('result', 'words'), RESULTS.values(), ids=RESULTS)
def test_results_of_step(result, words):
    assert re.search(words, error(step=result))


@pytest.mark.parametrize(
    ('result', 'words'),
    [
        ('None', r'Toy.reset returned None; expected \(observation, info\)'),
        ((ZEROS, {}, {}), 'Toy.reset returned a tuple of 3 values; expected'),
        ((ZEROS, 1), 'Toy.reset returned a tuple of 2 values; expected'),
        ((None, {}), 'The observation of Toy is None; its observation_space says float32'),
        ({}, 'The observation of Toy is a dict'),
    ],
)
def test_results_of_reset(result, words):
    assert re.search(words, error(reset=result))


DICT = gs.Dict({'a': gs.Box(-1, 1, (2,)), 'b': gs.Dict({'c': gs.Discrete(3)})})
FINE = {'a': ZEROS, 'b': {'c': 1}}


@pytest.mark.parametrize(
    ('space', 'obs', 'words'),
    [
        (None, np.zeros(3), r'is float64 of shape \(3,\); .* float32 numbers of shape \(2,\)'),
        (None, 'left', r"^The observation of Toy is text \('left'\); its observation"),
        (None, ['a', 'b'], 'is a list of 2 values'),
        (None, [[1], [1, 2]], 'is a list of 2 values'),
        (None, {'a': 1}, r"a dict with the keys \['a'\]"),
        (gs.Discrete(3), 'left', r"is text \('left'\); .* says int64 numbers of shape \(\)"),
        (gs.Discrete(3), None, 'is None'),
        (gs.MultiBinary(3), 1, r'is 1; .* says int8 numbers of shape \(3,\)'),
        (DICT, {'a': ZEROS}, r"with the keys \['a'\]; .* a dict with the keys \['a', 'b'\]"),
        (DICT, {'A': ZEROS, 'b': {'c': 1}}, r"keys \['A', 'b'\]; .* the keys \['a', 'b'\]"),
        (DICT, ZEROS, r"is float32 of shape \(2,\); .* a dict with the keys \['a', 'b'\]"),
        (DICT, {**FINE, 'b': 1}, r"^Entry 'b' of the observation of Toy is 1; .* keys \['c'\]"),
        (DICT, {**FINE, 'b': {'c': 'x'}}, r"^Entry 'b/c' of the observation of Toy is text"),
        (gs.Tuple([gs.Discrete(2)] * 3), (1, 1), 'is a tuple of 2 values; .* a tuple of 3'),
        (gs.Tuple([gs.Discrete(2)] * 2), 1, 'is 1; .* a tuple of 2 values'),
    ],
)  # fmt: skip
def test_observations_that_are_not_as_declared(space, obs, words):
    assert re.search(words, error(space=space, obs=obs))


def test_what_only_looks_odd_is_taken():
    one = np.ones(1)
    obs = play(make(step=([0.5, 0.5], one, np.bool_(False), 0, None)))
    assert (obs['reward'], obs['is_last']) == (1, False)
    assert play(make(reset=(ZEROS, None)), 1)['is_first']
    assert play(make(step=[ZEROS, 1, True, {'TimeLimit.truncated': True}]))['is_last']
    pair = gs.Tuple([gs.Discrete(2), gs.Discrete(2)])
    assert play(make(space=pair, obs=[1, 0]))['obs/0'] == 1


class Several:
    """As PettingZoo has it: spaces are methods."""

    possible_agents = ('a', 'b')

    def observation_space(self, agent):
        return gs.Discrete(3)

    action_space = observation_space

    def reset(self, seed=None, options=None):
        return {'a': 0, 'b': 0}, {}

    def step(self, action):
        raise AssertionError('never')


class SeveralByTurns(Several):
    observation_spaces = property(lambda self: {'a': gs.Discrete(3)})
    observation_space = None


class Vector:
    """As vectors of environments have it."""

    num_envs = 4
    single_observation_space = single_action_space = gs.Discrete(3)
    observation_space = action_space = gs.MultiDiscrete([3] * 4)

    def reset(self, seed=None, options=None):
        raise AssertionError('never')

    step = reset


class Waiting(Vector):
    single_observation_space = None

    def step_wait(self):
        raise AssertionError('never')


def without(key):
    env = Toy()
    setattr(env, key, None)
    return env


@pytest.mark.parametrize(
    ('build', 'words'),
    [
        (Several, '^Several is an environment of several agents; expected one with a single'),
        (SeveralByTurns, '^SeveralByTurns is an environment of several agents'),
        (Vector, '^Vector is a vector of 4 environments; expected a function that makes'),
        (Waiting, '^Waiting is a vector of 4 environments'),
        (lambda: gymnasium.make_vec('CartPole-v1', 2), 'is a vector of 2 environments'),
        (lambda: without('action_space'), '^The action_space of Toy is None; expected a space'),
        (lambda: without('observation_space'), '^The observation_space of Toy is None'),
    ],
)
def test_what_is_no_environment_with_one_agent(build, words):
    with pytest.raises(UserError, match=words):
        adapter.FromGym(build())


class NoOptions(Toy):
    def reset(self, seed=None):
        return ZEROS, {}


class NoSeed(Toy):
    def reset(self, options=None):
        return ZEROS, {}


@pytest.mark.parametrize('kind', [NoOptions, NoSeed])
def test_reset_without_seed_or_options(kind, monkeypatch):
    assert play(wrappers.wrap(adapter.FromGym(kind(), seed=1)))['reward'] == 1
    monkeypatch.setitem(gymnasium.registry, 'Toy-v0', gymnasium.envs.registration.EnvSpec(
        'Toy-v0', entry_point=kind, max_episode_steps=3))  # fmt: skip
    env = wrappers.wrap(adapter.make('Toy-v0', seed=1))
    assert play(env, 4)['is_last']
    wrapped = adapter.FromGym(gymnasium.wrappers.TimeLimit(kind(), 3), seed=1)
    with pytest.raises(
        UserError, match=r'reset\(\) got an unexpected .*; expected reset\(self'
    ):
        play(wrappers.wrap(wrapped))


class Closing(Toy):
    def close(self):
        raise OSError('the window is gone')


@pytest.mark.parametrize('parallel', [False, True])
def test_an_error_of_close_is_a_warning(parallel, capfd):
    makers = [lambda: wrappers.wrap(adapter.FromGym(Closing()))]
    driver = Driver(makers, parallel)
    driver(lambda carry, obs: (carry, {'action': np.zeros(1, np.int32)}, {}), steps=3)
    driver.close()
    captured = capfd.readouterr()
    assert 'Warning: Closing.close raised OSError: the window is gone' in captured.out
    assert 'Traceback' not in captured.out + captured.err


@pytest.mark.parametrize('parallel', [False, True])
def test_a_wrong_result_ends_a_run_at_once(parallel, capfd):
    driver = Driver([functools.partial(make, step=(ZEROS, 0.0))], parallel, restarts=10)
    policy = lambda carry, obs: (carry, {'action': np.zeros(1, np.int32)}, {})
    with pytest.raises(UserError, match=r'^Env 0, step 2: Toy.step returned a tuple of 2'):
        driver(policy, steps=3)
    assert 'restarted' not in capfd.readouterr().out


def test_an_env_without_close_closes():
    class Bare:
        observation_space, action_space = gs.Box(-1, 1, (2,)), gs.Discrete(3)

        def reset(self, seed=None):
            return ZEROS, {}

        def step(self, action):
            return ZEROS, 0.0, False, False, {}

    env = adapter.FromGym(Bare())
    play(wrappers.wrap(env))
    env.close()
