"""Whoever waits says for whom, and closes that hang or raise do not hold a run."""

import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import elements
import numpy as np
import pytest

import dreamerv3
import embodied
from embodied.core import rpc, waiting, workers
from embodied.run.parallel.actor import dismiss
from embodied.run.parallel.envs import parallel_env
from tests.doubles import CounterEnv
from tests.run.test_driver import constant_policy

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 30  # seconds until a test gives up


@pytest.fixture
def often(monkeypatch):
    """Waits say so after hundredths of a second."""
    monkeypatch.setattr(waiting, 'NOTICE', 0.02)
    monkeypatch.setattr(waiting, '_watch', waiting._Watch())


@pytest.fixture
def said(monkeypatch):
    """Lines that waits print, with a function that waits for one of a pattern."""
    lines, changed = [], threading.Condition()

    def put(*words, **kwargs):
        with changed:
            lines.append(' '.join(map(str, words)))
            changed.notify_all()

    def until(pattern: str) -> bool:
        found = lambda: any(re.search(pattern, x) for x in lines)
        with changed:
            return changed.wait_for(found, LIMIT)

    monkeypatch.setattr(waiting, 'print', put, raising=False)
    return until


@pytest.mark.filterwarnings(r'ignore:os\.fork\(\) was called')  # if JAX is loaded already
def test_a_forked_child_waits_for_nothing_of_its_parent(often):
    with waiting.Wait('the first'):
        child = os.fork()
        if not child:
            with waiting.Wait('the second'):
                os._exit(len(waiting._watch._waits))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_wait_says_for_whom_again_and_again(often, said):
    with waiting.Wait('the first'), waiting.Wait('the second'):
        assert said(r'^Waiting for 0 s: the first$')
        assert said(r'^Waiting for 0 s: the second$')
    with waiting.Wait('the third'):
        assert said(r'^Waiting for 0 s: the third$')
    assert not waiting._watch._waits
    assert waiting.NOTICE < 1


@pytest.mark.parametrize('where', ['made', 'reset', 'step'])
def test_the_driver_says_which_environment_it_waits_for(often, said, where):
    words = {
        'made': '^Waiting .*: env 1 to be made',
        'reset': '^Waiting .*: env 1 to answer, step 1$',
        'step': '^Waiting .*: env 1 to answer, step 4$',
    }[where]

    class Slow(CounterEnv):
        def __init__(self):
            super().__init__()
            assert where != 'made' or said(words)

        def step(self, action: dict) -> dict:
            obs = super().step(action)
            assert where == 'made' or obs['step'] != 3 * (where == 'step') or said(words)
            return obs

    driver = embodied.Driver([CounterEnv, Slow], parallel=False)
    driver(constant_policy, steps=8)
    driver.close()


def test_an_output_that_takes_long_at_the_end_is_named(often, said):
    class Slow:
        name = 'slow'

        def write(self, summaries):
            pass

        def close(self):
            assert said('^Waiting .*: the output slow to finish$')

    embodied.logging.Logger(0, [Slow()]).close()


def test_an_environment_in_parallel_says_that_it_waits_for_the_actor(often, said):
    address = rpc.fill('localhost:{auto}')
    flags = {'actor_addr': address, 'envs': 1, 'eval_envs': 0, 'env_timeout': 0.0}
    args = elements.Config(**flags, env_restarts=0, bind='')
    thread = threading.Thread(target=parallel_env, args=(CounterEnv, 0, args))
    thread.start()
    assert said(f'^Waiting .*: env 0 for the actor at {address}$')
    dismiss({'action': elements.Space(np.int32, (), 0, 5)}, args)
    thread.join(LIMIT)
    assert not thread.is_alive()


class Closing(CounterEnv):
    """Raises when it is closed, or does not end."""

    def __init__(self, how: str):
        super().__init__(length=3)
        self._how = how

    def close(self) -> None:
        if self._how == 'raises':
            raise OSError('no display\nat all')
        time.sleep(1000)


CLOSES = [
    ('raises', r'did not close well: OSError: no display$'),
    ('hangs', r'did not close within 0\.2 s; left as it is\.$'),
]


@pytest.mark.parametrize(('how', 'words'), CLOSES)
def test_a_run_goes_on_after_a_close_that_fails(tmp_path, monkeypatch, capsys, how, words):
    """At the first look at an environment as well as at the end."""
    monkeypatch.setattr(workers, 'CLOSING', 0.2)
    run = {'steps': 30, 'envs': 1, 'usage.psutil': False}
    flags = {'random_agent': True, 'logger': {'outputs': ['jsonl']}, 'run': run}
    dreamerv3.train(lambda: Closing(how), tmp_path / 'run', ['debug'], **flags)
    out = capsys.readouterr().out
    assert (tmp_path / 'run' / 'ckpt' / 'latest').exists()
    for name in ('the environment of --task gym_Closing .*', 'env 0'):
        assert re.search(f'^Warning: {name} {words}', out, re.M), out


@pytest.mark.parametrize(
    ('how', 'words'),
    [
        ('raises', f'^Warning: env 0 {CLOSES[0][1]}'),
        ('hangs', r'env 0 did not close within 0\.5 s; its process is'),
    ],
)
def test_a_process_whose_environment_does_not_close(monkeypatch, capfd, how, words):
    monkeypatch.setattr(workers, 'GRACE', 0.5 if how == 'hangs' else 60.0)
    driver = embodied.Driver([lambda: Closing(how)])
    driver(constant_policy, steps=2)
    driver.close()
    out, err = capfd.readouterr()
    assert re.search(words, out, re.M)
    assert err == ''


SCRIPTS = {
    'driver': 'embodied.Driver([CounterEnv])',
    'train': "dreamerv3.train(CounterEnv, sys.argv[1], ['debug'], random_agent=True, "
    "run={'debug': False, 'steps': 20})",
    'parallel': "dreamerv3.train(CounterEnv, sys.argv[1], ['debug'], random_agent=True, "
    "script='parallel')",
}


@pytest.mark.parametrize('name', SCRIPTS)
def test_a_script_without_the_main_guard_gets_one_sentence(tmp_path, name):
    script = tmp_path / 'script.py'
    lines = 'import sys, dreamerv3, embodied\nfrom tests.doubles import CounterEnv\n'
    script.write_text(lines + SCRIPTS[name] + '\n')
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / 'run')],
        capture_output=True, text=True, timeout=100, env={'PYTHONPATH': str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count('Traceback') == 1, done.stderr
    assert re.search(r"must do so below the line `if __name__ == '__main__':`", done.stderr)
    assert 'restarted' not in done.stdout
