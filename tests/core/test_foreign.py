"""Environments of another interpreter; here it is this one, started anew."""

import contextlib
import functools
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import elements
import numpy as np
import pytest

import embodied
from embodied.core import foreign
from tests.doubles import CounterEnv, DoubleAgent, FaultyEnv
from tests.run.test_driver import constant_policy, make_envs, pids_of, record

PYTHON = sys.executable
ROOT = pathlib.Path(__file__).parents[2]


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def drive(makes, **kwargs):
    """A driver of this interpreter started anew, closed at the end."""
    return contextlib.closing(embodied.Driver(makes, python=PYTHON, **kwargs))


def faulty(**kwargs):
    return functools.partial(FaultyEnv, 0, **kwargs)


def test_the_same_transitions():
    runs = []
    for python in ('', PYTHON):
        driver = embodied.Driver(make_envs(2, length=3, image=True), False, python=python)
        agent = DoubleAgent(driver.obs_space, driver.act_space)
        seen = record(driver)
        driver.reset(agent.init_policy)
        driver(agent.policy, steps=14)
        pids = pids_of(driver) if python else []
        assert not any(gone(pid) for pid in pids)
        driver.close()
        assert all(gone(pid) for pid in pids)
        runs.append([x for steps in seen for x in steps])
    assert len(runs[0]) == len(runs[1]) == 14
    for first, second in zip(*runs, strict=True):
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])
            assert np.asarray(first[key]).dtype == np.asarray(second[key]).dtype


def test_an_error_in_it_has_index_and_traceback():
    makes = [CounterEnv, faulty(fault='raise', at=1)]
    with drive(makes) as driver:
        driver(constant_policy, steps=2)
        with pytest.raises(RuntimeError, match=r'Env 1 failed(.|\n)*ZeroDivisionError: fault'):
            driver(constant_policy, steps=2)
        assert driver.failed


def refuse():
    raise embodied.UserError('not this one')


def test_a_mistake_of_the_user_stays_one():
    with pytest.raises(embodied.UserError, match='Env 0: not this one'):
        embodied.Driver([refuse], python=PYTHON)


def test_death_and_silence_are_errors_and_it_is_made_anew(tmp_path):
    for fault, words in (('kill', r'ended \(code -9\)'), ('hang', 'no answer for 3 s')):
        driver = drive([faulty(fault=fault, at=1)], timeout=3.0)
        with driver as running, pytest.raises(RuntimeError, match=words):
            running(constant_policy, steps=2)
        make = faulty(fault=fault, at=1, marker=str(tmp_path / fault))
        with drive([make], timeout=3.0, restarts=1) as running:
            (seen,) = record(running)
            running(constant_policy, steps=4)
            assert [int(x['step']) for x in seen] == [0, 0, 1, 2]


PARENT = """
import sys
from embodied.core import foreign
from tests.doubles import FaultyEnv
import functools
make = functools.partial(FaultyEnv, 0, fault='hang', at=0)
worker = foreign.ForeignWorker(make, 0, python=sys.executable)
spaces = worker.spaces()
worker.send({'action': 0, 'reset': True})
print(worker.pid, flush=True)
input()
"""


def test_it_ends_when_its_parent_is_killed_during_a_step():
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )  # fmt: skip
    with parent:
        pid = int(parent.stdout.readline())
        handle = os.pidfd_open(pid)
        parent.kill()
    foreign.select.select([handle], [], [], 60)  # readable once the process has ended
    os.close(handle)
    assert ended(pid)


def ended(pid):
    """Whether a process is gone, or a zombie that nobody collects."""
    try:
        state = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
    except FileNotFoundError:
        return True
    return state == 'Z'


def named(config, numbers, *, deep):
    env = CounterEnv(env=config.a.b, length=numbers[0])
    assert deep == {'x': [1, None], 'config': config}
    assert isinstance(config, elements.Config)
    return env


def test_factories_cross_as_names_with_plain_arguments():
    config = elements.Config(a={'b': 7}, c=[1.5, 2.5], d=float('inf'))
    deep = {'x': [1, None], 'config': config}
    make = functools.partial(functools.partial(named, config, deep=deep), (4, 5))
    data = foreign.describe(make)
    assert 'length' not in repr(data)
    again = foreign.construct(data)
    assert again().length == 4
    env = foreign.ForeignEnv(foreign.ForeignWorker(make, 3, python=PYTHON))
    obs = env.step({'action': np.int32(2), 'reset': np.bool_(True)})
    assert (obs['env'], obs['last'], obs['is_first']) == (7, 2, True)
    assert env.obs_space.keys() == obs.keys()
    env.close()


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda: CounterEnv(), '<lambda> of'),
        (functools.partial(CounterEnv, np.int32(3)), 'type int32'),
        (functools.partial(CounterEnv, object()), 'type object'),
    ],
)
def test_what_cannot_cross_is_refused(make, words):
    with pytest.raises(embodied.UserError, match=words):
        foreign.ForeignWorker(make, 0, python=PYTHON)


def seeded(index, step=0, attempt=0):
    return CounterEnv(env=index + 10 * step + 100 * attempt)


def plain(index):
    return CounterEnv(env=index)


def test_a_factory_of_environments_elsewhere():
    def first(*args, **kwargs):
        env = foreign.make(PYTHON, *args, **kwargs)
        obs = env.step({'action': np.int32(0), 'reset': np.bool_(True)})
        env.close()
        return int(obs['env'])

    assert first(seeded, 2) == 2
    assert first(seeded, 2, step=3, attempt=4) == 432
    assert first(plain, 2, step=3, attempt=4) == 2


def test_a_program_that_is_none_is_refused():
    with pytest.raises(embodied.UserError, match='no_such_python is no program'):
        foreign.ForeignWorker(CounterEnv, 0, python='no_such_python')


def test_a_missing_package_is_named(tmp_path):
    """The program stands for an interpreter without numpy."""
    program = tmp_path / 'python'
    block = 'import sys; sys.modules["numpy"] = None; sys.argv = sys.argv[1:]; '
    run = (
        'import runpy; sys.path.insert(0, ""); runpy.run_path(sys.argv[0], run_name="__main__")'
    )
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c \'{block}{run}\' "$@"\n')
    program.chmod(0o755)
    worker = foreign.ForeignWorker(CounterEnv, 0, python=str(program))
    with pytest.raises(embodied.UserError, match='lacks numpy; install numpy, elements'):
        worker.spaces()
    worker.close()


def test_it_needs_no_jax_and_no_rpc():
    script = textwrap.dedent("""
        import sys
        for name in ('jax', 'jaxlib', 'equinox', 'optax', 'portal', 'ml_dtypes', 'gymnasium'):
            sys.modules[name] = None
        from embodied.core import foreign
        from dreamerv3 import environments
        print('ready')
    """)
    done = subprocess.run([PYTHON, '-c', script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == 'ready\n', done.stderr


def test_packages_of_this_interpreter_are_not_on_the_path_of_the_other():
    paths = foreign.environment()['PYTHONPATH'].split(os.pathsep)
    assert str(ROOT) in paths
    assert not [x for x in paths if re.search('site-packages|lib/python', x)]
