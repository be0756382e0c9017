"""Environments of `dreamerv3.train`: how often they are made, and what makes none."""

import collections
import functools
import json
import math
import sys

import elements
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

import dreamerv3
import embodied
from dreamerv3 import factories, makers
from embodied import UserError
from tests.doubles import DoubleAgent


class Counted(gymnasium.Env):
    """Writes a line into a file whenever it is made or closed."""

    def __init__(self, path=None, index=0):
        self.observation_space = gs.Box(-1, 1, (2,))
        self.action_space = gs.Discrete(3)
        self._path = path
        self._write(f'made {index}')

    def reset(self, *, seed=None, options=None):
        self._count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._count += 1
        over = self._count == 5
        info = {'is_success': True, 'log/nan': math.nan, 'log/word': 'won'} if over else {}
        return np.zeros(2, np.float32), 1.0, over, False, info

    def close(self):
        self._write('closed')

    def _write(self, line):
        if self._path:
            with open(self._path, 'a') as file:
                file.write(f'{line}\n')


def run(make_env, folder, **flags):
    """A run of the random agent, which needs no JAX."""
    flags = {'run.steps': 40, 'logger.outputs': ['jsonl'], 'batch_size': 1, **flags}
    flags = {'random_agent': True, **flags}
    return dreamerv3.train(make_env, folder, ['debug'], **flags)


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Flags that evaluate a trained agent, which needs no JAX either."""

    def make_agent(config, env):
        agent = DoubleAgent(env.obs_space, env.act_space, config)
        env.close()
        return agent

    monkeypatch.setattr(factories, 'make_agent', make_agent)
    run(Counted, tmp_path / 'trained', random_agent=False)
    source = {'run.from_checkpoint': str(tmp_path / 'trained'), 'random_agent': False}
    return {'script': 'eval_only', 'run.episodes': 2, **source}


SIZES = {'run.envs': 2, 'run.eval_envs': 2, 'run.eval_eps': 2}


@pytest.mark.parametrize(
    ('script', 'debug', 'count'),
    [
        ('train', True, 2), ('train', False, 2), ('train_eval', True, 4),
        ('train_eval', False, 4), ('parallel', False, 4),
    ],
)  # fmt: skip
def test_a_function_is_called_once_more_than_there_are_environments(
    tmp_path, script, debug, count
):
    check_count(tmp_path, count, **{'script': script, 'run.debug': debug, **SIZES})


@pytest.mark.parametrize('debug', [True, False])
def test_an_evaluation_calls_a_function_once_more_as_well(tmp_path, trained, debug):
    check_count(tmp_path, 2, **{**trained, 'run.debug': debug, **SIZES})


def check_count(tmp_path, count, **flags):
    path = tmp_path / 'lines'

    def make(index):
        return Counted(path, index)

    run(make, tmp_path / 'run', **flags)
    lines = collections.Counter(path.read_text().splitlines())
    made = {k: v for k, v in lines.items() if k.startswith('made')}
    assert made == {'made 0': 2, **{f'made {i}': 1 for i in range(1, count)}}
    assert lines['closed'] == count + 1


def test_the_command_line_makes_one_more_as_well(tmp_path, monkeypatch):
    from dreamerv3 import main

    path = tmp_path / 'lines'
    monkeypatch.setitem(gymnasium.registry, 'Counted-v0', gymnasium.envs.registration.EnvSpec(
        'Counted-v0', entry_point=functools.partial(Counted, path)))  # fmt: skip
    flags = '--configs debug --task gym_Counted-v0 --random_agent True --run.steps 40'
    flags += f' --run.envs 2 --logger.outputs jsonl --logdir {tmp_path}/run'
    main.main(flags.split())
    assert path.read_text().count('made') == path.read_text().count('closed') == 3


@pytest.mark.parametrize('script', ['train', 'parallel'])
def test_entries_of_info_reach_the_metrics(tmp_path, script):
    """Also one that is not a number, which is null there."""
    flags = {'env.gym.info': 'is_.*', 'run.log_every': 0.0, 'run.steps': 80}
    run(Counted, tmp_path, script=script, **flags)
    lines = [json.loads(x) for x in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
    found = [x for x in lines if 'epstats/log/is_success/avg' in x]
    assert found[0]['epstats/log/is_success/sum'] == 1
    assert found[0]['epstats/log/nan/avg'] is None


def test_wrap_takes_the_same_option():
    env = dreamerv3.wrap(Counted(), info='is_success')
    act = {'action': np.int32(0), 'reset': np.bool_(False)}
    assert [env.step(act) for _ in range(6)][-1]['log/is_success'] == 1


NEEDED = 'needs the arguments {}; expected a function without any, or with one'


def needs_two(rank, seed):
    raise AssertionError('never')


def needs_a_name(*, name):
    raise AssertionError('never')


class Needy(gymnasium.Env):
    def __init__(self, size, speed, *, title):
        raise AssertionError('never')


@pytest.mark.parametrize(
    ('make_env', 'words'),
    [
        (needs_two, 'needs_two ' + NEEDED.format(r'\(rank, seed\)')),
        (needs_a_name, 'needs_a_name ' + NEEDED.format(r'\(name\)')),
        (Needy, 'the class Needy ' + NEEDED.format(r'\(size, speed, title\)')),
        (lambda: None, 'returned None; expected a new environment'),
        (lambda: Counted, 'found the class Counted'),
        (lambda: 3, 'found int'),
        (None, 'found NoneType'),
        (functools.partial(Counted, None), None),
        (lambda index, size=3: Counted(None, index), None),
        (lambda *args, **kwargs: Counted(*args), None),
    ],
)
def test_functions(make_env, words, tmp_path):
    if words is None:
        run(make_env, tmp_path)
        return
    with pytest.raises(UserError, match=words):
        run(make_env, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    'again', [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 3)]
)
def test_the_same_environment_again_is_refused(tmp_path, again):
    env = Counted()
    with pytest.raises(UserError, match='returned the same Counted again; expected a new one'):
        run(lambda: again(env), tmp_path)


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (
            {'script': 'train_eval'},
            'but the script train_eval needs more than one: give a func',
        ),
        ({'script': 'parallel'}, 'the script parallel needs more than one'),
        ({'script': 'parallel_envs'}, 'the script parallel_envs needs more than one'),
        ({'run.envs': 2}, r'run\.envs is 2'),
        ({'run.debug': False}, r'a process of its own \(run\.debug False'),
        ({'run.env_python': sys.executable}, 'a process of its own'),
        ({'run.env_restarts': 3}, r'one that fails is made anew \(run\.env_restarts\)'),
    ],
)
def test_one_environment_serves_one_environment(tmp_path, flags, words):
    path = tmp_path / 'lines'
    with pytest.raises(UserError, match=words):
        run(Counted(path), tmp_path / 'run', **flags)
    assert path.read_text() == 'made 0\n'


def test_one_environment_is_evaluated(tmp_path, trained):
    run(Counted(), tmp_path / 'run', **trained)
    assert (tmp_path / 'run' / 'scores.jsonl').read_text().count('\n') == 2


def test_an_error_of_the_one_environment_is_shown_as_it_is(tmp_path, capsys):
    env = Counted()
    env.step = lambda action: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(env, tmp_path)
    assert 'restarted' not in capsys.readouterr().out


def test_another_interpreter_makes_all(tmp_path):
    """Here the function is only named, since its packages may not be installed here."""
    run(make_dummy, tmp_path, **{'run.env_python': sys.executable, 'run.envs': 1})
    assert elements.Config.load(tmp_path / 'config.yaml').task == 'gym_make_dummy'


def make_dummy():
    return embodied.envs.make('dummy_disc')


def test_a_maker_crosses_to_other_processes_without_what_it_made():
    import cloudpickle

    config = elements.Config(dreamerv3.config.load())
    maker = makers.Maker(Counted, config)
    assert maker.name() == 'Counted'
    other = cloudpickle.loads(cloudpickle.dumps(maker))
    assert other(1).act_space.keys() == {'action', 'reset'}
    assert maker._early is not None
    maker.close()
