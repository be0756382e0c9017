"""The actor: batches, states, resets, and what it hands on."""

import itertools
import threading

import elements
import numpy as np
import pytest

from embodied.core.errors import UserError
from embodied.core.rpc import packing
from embodied.run.parallel import actor
from tests.doubles import CounterEnv, DoubleAgent
from tests.run.harness import ARGS
from tests.run.parallel.parts import PARALLEL

LIMIT = 20  # seconds until a test gives up


class Client:
    """Takes calls and answers nothing."""

    def __init__(self):
        self.calls = []

    def call(self, method, message):
        self.calls.append((method, message))
        return self

    def done(self):
        return False

    def result(self, timeout=None):
        return {}

    def close(self):
        self.calls.append(('closed', None))


class Reply:
    """Waits for the answer to one request."""

    def __init__(self, client):
        self.client = client
        self._came = threading.Event()

    def __call__(self, value):
        self.value = value
        self._came.set()

    def error(self, error):
        self([{}, error])

    def result(self):
        assert self._came.wait(LIMIT)
        return self.value


class Env:
    """An environment process in this one."""

    def __init__(self, actor, envid, is_eval=False, client=b'first', length=5, warnings=()):
        self.actor, self.envid, self.client = actor, envid, client
        self.warnings = warnings
        self.ident = actor.ident()
        self.is_eval, self.env = is_eval, CounterEnv(envid, length=length)
        self.act = {'action': np.int32(0), 'reset': np.bool_(True)}

    def ask(self):
        self.obs = self.env.step(self.act)
        return self.ask_again()

    def ask_again(self):
        reply = Reply(self.client)
        about = {'actor': self.ident, 'envid': self.envid, 'is_eval': self.is_eval}
        self.actor.act(reply, {**about, 'obs': self.obs, 'warnings': self.warnings})
        return reply

    def take(self, reply):
        act, word = reply.result()
        self.act = {**act, 'reset': np.bool_(word == 'reset' or self.obs['is_last'])}
        return word


@pytest.fixture
def make(request):
    """Returns a function that makes a started actor and its clients."""
    made = []

    def make(agent=DoubleAgent, start=True, **args):
        config = elements.Config({**ARGS, **PARALLEL, **args})
        env = CounterEnv()
        agent = agent(env.obs_space, env.act_space, config)
        found = actor.Actor(agent, elements.Counter(), Client(), Client(), config)
        found.replay, found.log = found._replay._client, found._logger._client
        made.append(found)
        if start:
            found.start()
        return found

    yield make
    for each in made:
        each._owners.clear()  # nobody is left to be told
        each.close(tell=False)


def play(envs, steps):
    """Step all environments together."""
    for _ in range(steps):
        replies = [env.ask() for env in envs]
        assert [env.take(reply) for env, reply in zip(envs, replies, strict=True)] == [
            'go'
        ] * len(envs)


def inserted(found):
    """All transitions of each environment, in the order in which they were sent."""
    rows = {}
    for method, message in found.replay.calls:
        assert method == 'add_batch'
        for row, envid in enumerate(message['envid']):
            rows.setdefault(int(envid), []).append({k: v[row] for k, v in message.items()})
    return rows


@pytest.mark.parametrize(('batch', 'threads'), [(-1, 1), (4, 1), (1, 3), (3, 2)])
def test_transitions_are_whole_and_in_order(make, batch, threads):
    found = make(envs=4, actor_batch=batch, actor_threads=threads)
    play([Env(found, i) for i in range(4)], 12)
    rows = inserted(found)
    assert sorted(rows) == [0, 1, 2, 3]
    for envid, steps in rows.items():
        assert [int(x['step']) for x in steps] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
        assert {int(x['env']) for x in steps} == {envid}
        # The state of each env counts the steps of its episode, wherever it was in a batch.
        assert [int(x['latent'][0]) for x in steps] == [int(x['step']) for x in steps]
        for before, after in itertools.pairwise(steps):
            if not after['is_first']:
                assert after['last'] == before['action']
        assert all(x['action'] == 0 for x in steps if x['is_last'])
        assert not any('log/' in key for key in steps[0])
    assert int(found._step) == 48


def test_evaluation_counts_no_steps(make):
    found = make(envs=2, eval_envs=1)
    play([Env(found, 0), Env(found, 1), Env(found, 2, is_eval=True)], 6)
    assert int(found._step) == 12
    flags = {
        envid: {bool(x['is_eval']) for x in rows} for envid, rows in inserted(found).items()
    }
    assert flags == {0: {False}, 1: {False}, 2: {True}}


def test_a_partial_batch_does_not_wait_for_those_that_died(make):
    found = make(envs=4, actor_batch=4)
    alive = Env(found, 2)
    play([alive], 3)
    assert len(inserted(found)[2]) == 3


def test_an_episode_that_is_not_known_is_reset(make):
    found = make(envs=1)
    env = Env(found, 0)
    play([env], 3)
    env.client = b'second'
    assert env.take(env.ask()) == 'reset'
    assert env.act['reset']
    play([env], 2)
    steps = [(int(x['episode']), int(x['step'])) for x in inserted(found)[0]]
    assert steps == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert int(found._step) == 5


@pytest.mark.parametrize('steps', [1, 3])
def test_what_another_actor_may_have_handed_on_is_not_taken_again(make, steps):
    """Not even the first step of an episode, which every actor could go on from."""
    env = Env(make(envs=1), 0)
    play([env], steps - 1)
    env.take(env.ask())
    env.actor = make(envs=1)
    assert env.take(env.ask_again()) == 'reset'
    env.ident = env.actor.ident()
    play([env], 2)
    assert [int(x['step']) for x in inserted(env.actor)[0]] == [0, 1]
    assert int(env.actor._step) == 2


def test_two_processes_may_not_take_turns_in_one_environment(make):
    found = make(envs=1)
    one, other = Env(found, 0), Env(found, 0, client=b'other')
    play([one], 2)
    play([other], 2)  # it may have been started anew
    assert one.take(one.ask()) == 'reset'
    refused = one.take(one.ask())
    assert isinstance(refused, UserError)
    assert 'Environment 0 is played by two processes' in str(refused)
    play([other], 2)


def test_the_logger_gets_counts_flags_and_the_images_of_the_first(make):
    found = make(envs=2, eval_envs=1)
    play([Env(found, 0), Env(found, 1), Env(found, 2, is_eval=True)], 2)
    total = 0
    for method, message in found.log.calls:
        assert method == 'transitions'
        assert message['rows'].keys() == {'reward', 'is_first', 'is_last', 'log/step'}
        total += int((~message['is_eval']).sum())
        assert message['step'] == total
        shown = [str(i) for i, envid in enumerate(message['envid']) if envid in (0, 2)]
        assert sorted(message['images']) == shown
    assert total == 4


class RareEnv(CounterEnv):
    """Logs a text at its first step, and a number whose type depends on the environment."""

    def step(self, action):
        obs = super().step(action)
        first = {'log/word': np.asarray('hi')} if self.step_index == 0 else {}
        return {**obs, **first, 'log/kind': [np.int32(1), np.float64(0.5)][self.env]}


def test_the_logger_gets_what_only_some_environments_log(make):
    found = make(envs=2)
    envs = [Env(found, 0), Env(found, 1)]
    for env in envs:
        env.env = RareEnv(env.envid)
    play(envs, 2)
    seen = {}
    for _, message in found.log.calls:
        assert 'log/word' not in message['rows']
        packing.pack(message)  # it can be sent
        for row, envid in enumerate(message['envid']):
            rows = {k: v[row] for k, v in message['rows'].items()}
            part = {**rows, **message['logs'].get(str(row), {})}
            seen.setdefault(int(envid), []).append([part['log/kind'], part.get('log/word')])
    assert seen == {0: [[1, 'hi'], [1, None]], 1: [[0.5, 'hi'], [0.5, None]]}


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        ({'envid': 7}, 'Environment 7 is none of the 1'),
        ({'envid': -1}, 'Environment -1 is none of the 1'),
        ({'is_eval': True}, 'is not one of evaluation here; .*run.eval_envs'),
        ({'obs': {}}, "does not send .*'is_first'"),
        ({'dtype': np.int64}, r"sends 'step' as int64 \(\); the agent was made for int32 \(\)"),
    ],
)
def test_what_does_not_fit_is_refused(make, change, text):
    found = make(envs=1)
    env = Env(found, 0)
    obs = env.env.step(env.act)
    if 'dtype' in change:
        change = {'obs': {**obs, 'step': change['dtype'](0)}}
    about = {'actor': env.ident, 'envid': 0, 'is_eval': False}
    with pytest.raises(UserError, match=text):
        found.act(Reply(b''), {**about, 'obs': obs, **change})
    play([Env(found, 0)], 1)  # and it goes on


def test_at_the_end_all_are_told(make):
    found = make(envs=2, actor_batch=2)
    envs = [Env(found, 0), Env(found, 1)]
    play(envs, 2)
    waiting = envs[0].ask()
    closing = threading.Thread(target=found.close, args=(True,))
    closing.start()
    assert envs[0].take(waiting) in ('end', 'go')
    while envs[1].take(envs[1].ask()) != 'end':
        pass
    if not found._told >= {0}:
        assert envs[0].take(envs[0].ask()) == 'end'
    closing.join(LIMIT)
    assert not closing.is_alive()
    assert found.replay.calls[-1] == ('closed', None)


def test_nobody_acts_beyond_the_last_step(make):
    found = make(envs=2, actor_batch=2, steps=6)
    envs = [Env(found, 0), Env(found, 1)]
    play(envs, 3)
    replies = [env.ask() for env in envs]
    found._owners.clear()  # nobody else is waited for
    found.close(tell=True)
    assert [env.take(reply) for env, reply in zip(envs, replies, strict=True)] == ['end'] * 2
    assert int(found._step) == 6


def test_environments_are_not_told_of_a_pause(make):
    found = make(envs=1, steps=2)
    env = Env(found, 0)
    play([env], 2)
    waiting = env.ask()
    found.close(tell=False)
    later = env.ask()
    assert not waiting._came.is_set()
    assert not later._came.is_set()


class Broken(DoubleAgent):
    def policy(self, carry, obs, mode='train'):
        raise ZeroDivisionError('the policy fails')


def test_an_error_of_the_policy_is_kept_for_the_one_who_asks(make):
    found = make(agent=Broken, envs=1)
    Env(found, 0).ask()
    found._threads[0].join(LIMIT)
    assert isinstance(found.failure, ZeroDivisionError)


@pytest.mark.parametrize(
    ('envs', 'evals', 'flag', 'size'),
    [(16, 4, -1, 10), (1, 0, -1, 1), (4, 0, 3, 3), (4, 0, 99, 4), (3, 0, -1, 1)],
)
def test_batch_size(envs, evals, flag, size):
    args = elements.Config(envs=envs, eval_envs=evals, actor_batch=flag)
    assert actor.batch_size(args) == size


def test_warnings_of_all_environments_are_said_once(make, capsys):
    found = make(envs=2, actor_batch=2)
    envs = [Env(found, i, warnings=[['topic', f'said by {i}']]) for i in range(2)]
    play(envs, 3)
    assert capsys.readouterr().out == 'Warning: said by 0\n'
