"""Runs whose environments misuse their process, or whose output nobody reads."""

import json
import os
import pty
import re
import signal
import time

import numpy as np
import pytest

import embodied
from dreamerv3 import config as configs
from embodied.core import guest
from tests.run.guests import Guest, gone
from tests.run.test_program import Program, step_of

SHORT = '--run.envs 1 --run.steps 150 --run.save_every -1'


def ended_well(program, logdir, steps=150):
    """Check that a run went on to its end, and that all of its files are there."""
    assert program.end() == 0, program.err
    assert step_of(logdir) == steps
    lines = [json.loads(x) for x in (logdir / 'metrics.jsonl').read_text().splitlines()]
    assert lines[-1]['step'] == steps
    return program


# Output.


@pytest.mark.parametrize('how', ['pipe', 'full', 'terminal'])
def test_a_run_goes_on_when_its_output_goes_nowhere(tmp_path, how):
    """`| head`, a full disk, a terminal that is gone."""
    flags = f'{SHORT} --run.steps 600'
    double = {'how': 'talk', 'at': 300}
    if how == 'full':
        with open('/dev/full', 'w') as full:
            program = Program(tmp_path, flags, double, stdout=full, stderr=full)
    elif how == 'terminal':
        ours, theirs = pty.openpty()
        program = Program(
            tmp_path, flags, double, {'TERM': 'xterm'}, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.read(ours, 100)
        os.close(ours)
    else:
        program = Program(tmp_path, flags, double)
        program.until('DreamerV3')
        program.process.stdout.close()
        program.process.stderr.close()
    assert program.process.wait(60) == 0
    assert step_of(tmp_path) == 600
    assert len((tmp_path / 'scores.jsonl').read_text().splitlines()) == 60


@pytest.mark.parametrize('how', ['close_number', 'close_stream', 'replace_stream', 'talk'])
def test_an_environment_cannot_take_the_output_away(tmp_path, how):
    program = ended_well(Program(tmp_path, SHORT, {'how': how}), tmp_path)
    assert '[Step 150]  episode/score 9' in program.out
    assert program.err == ''


def test_an_ascii_terminal_loses_no_block(tmp_path):
    env = {'PYTHONIOENCODING': 'ascii'}
    program = Program(tmp_path, f'{SHORT} --logger.filter .', env=env)
    ended_well(program, tmp_path)
    assert re.search(r'^-- Step 150 -+$', program.out, re.MULTILINE)
    assert 'Warning' not in program.out


# Ends.


def test_an_exit_of_an_environment_is_an_error_of_it(tmp_path):
    double = {'how': 'leave', 'at': 100}
    program = Program(tmp_path, f'{SHORT} --run.save_every 900', double)
    assert program.end() == 0, program.err  # it was made anew
    assert 'is restarted (1 of 10' in program.out
    program = Program(tmp_path, f'{SHORT} --run.steps 300 --run.env_restarts 0', double)
    assert program.end() == 1
    assert 'RuntimeError: The environment called sys.exit(0).' in program.err
    assert 'guests.py' in program.err
    assert step_of(tmp_path) > 150


def test_an_exit_before_the_run_is_an_error_too(tmp_path):
    program = Program(tmp_path, SHORT, {'how': 'leave', 'at': 0})
    assert program.end() == 1
    assert 'The environment called sys.exit(0).' in program.err


def test_what_was_learned_is_saved_before_an_interrupt_from_inside(tmp_path):
    flags = f'{SHORT} --run.train_ratio 64'
    program = Program(tmp_path, flags, {'how': 'interrupt', 'at': 140})
    assert program.end() == 130
    assert step_of(tmp_path) == 139


@pytest.mark.parametrize('how', ['start_thread', 'start_child'])
def test_what_an_environment_leaves_does_not_keep_the_run(tmp_path, how):
    program = Program(tmp_path, SHORT, {'how': how, 'at': 1})
    ended_well(program, tmp_path)
    line = program.out.splitlines()[-1]
    assert line.startswith('All is done and saved. Not waited for: ')
    if how == 'start_thread':
        assert "thread 'reader'" in line
    else:
        pid = int(re.search(r'child (\d+)', program.out)[1])
        assert f"process 'helper' ({pid})" in line
        assert gone(pid)


def test_a_second_signal_while_the_process_ends_changes_nothing(tmp_path):
    program = Program(tmp_path, f'{SHORT} --run.steps 1e9', {'how': 'start_thread', 'at': 1})
    program.until('episode/score')
    program.process.send_signal(signal.SIGTERM)
    program.until('Stopped and saved')
    time.sleep(0.2)  # it waits for the thread now, for two seconds
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0


# Children.


@pytest.mark.parametrize('debug', [True, False])
def test_the_end_of_a_child_is_not_that_of_the_run(tmp_path, debug):
    double = {'how': 'start_and_end_child', 'at': 1}
    program = Program(tmp_path, f'{SHORT} --run.debug {debug}', double)
    ended_well(program, tmp_path)
    assert f'child ended {-signal.SIGTERM}' in program.out
    assert 'the run ends' not in program.out


def test_a_child_does_not_become_a_second_run(tmp_path):
    program = ended_well(Program(tmp_path, SHORT, {'how': 'leave_in_a_child'}), tmp_path)
    assert program.out.count('child left 7') == 1


def test_children_of_an_environment_in_a_process_end_with_the_run(tmp_path):
    double = {'how': 'start_child', 'at': 1}
    program = Program(tmp_path, f'{SHORT} --run.debug False', double)
    ended_well(program, tmp_path)
    assert gone(int(re.search(r'child (\d+)', program.out)[1]))
    program = Program(tmp_path, '--run.debug False --run.envs 1', double)
    pid = int(program.until(r'child (\d+)')[1])
    program.signal(signal.SIGKILL)
    assert program.end() == -signal.SIGKILL  # and all that hold its pipes
    assert gone(pid)


# The current folder.


def test_an_environment_may_change_the_folder(tmp_path):
    flags = f'{SHORT} --logdir runs/new --jax.compilation_cache cache'
    double = {'how': 'change_folder', 'at': 0}
    program = ended_well(Program('unused', flags, double, cwd=tmp_path), tmp_path / 'runs/new')
    assert f'logdir    {tmp_path}/runs/new (new)' in program.out
    assert {x.name for x in tmp_path.iterdir()} == {'runs', 'elsewhere'}
    config = configs.read_file(tmp_path / 'runs/new/config.yaml')
    assert config['logdir'] == f'{tmp_path}/runs/new'
    assert config['jax.compilation_cache'] == f'{tmp_path}/cache'
    flags = f'--logdir runs/eval --script eval_only --run.from_checkpoint runs/new {SHORT}'
    program = Program('unused', flags, double, cwd=tmp_path)
    assert program.end() == 0, program.err
    assert (tmp_path / 'runs/eval/scores.jsonl').exists()
    assert not [x for x in (tmp_path / 'elsewhere').rglob('*') if x.is_file()]


# Arithmetic.


def test_an_error_of_arithmetic_is_the_environments_own(tmp_path):
    flags = f'{SHORT} --run.env_restarts 0 --run.save_every 900 --run.train_ratio 64'
    program = Program(tmp_path, flags, {'how': 'divide', 'at': 140})
    assert program.end() == 1
    assert 'FloatingPointError: divide by zero' in program.err
    assert 'guests.py' in program.err  # where it was raised
    assert step_of(tmp_path) == 139


def test_settings_of_arithmetic_stay_with_the_environment():
    before = np.geterr()
    seen = []

    class Strict(Guest):
        def step(self, action):
            seen.append(np.geterr()['divide'])
            return super().step(action)

    makers = [lambda: Strict(how='be_strict', at=0), lambda: Strict(how='be_strict', at=9)]
    driver = embodied.Driver(makers, parallel=False)
    found = []
    driver.on_step(lambda transition, worker: found.append(np.geterr()))

    def policy(carry, obs):
        assert np.geterr() == before
        return carry, {'action': np.zeros(2, np.int32)}, {}

    driver(policy, steps=24)
    driver.close()
    assert all(x == before for x in found)
    assert np.geterr() == before
    assert seen[::2] == ['raise'] * 12
    assert seen[1::2] == ['warn'] * 9 + ['raise'] * 3


def test_a_handler_of_the_users_program_may_end_it():
    """Its exit is none of the environment, which it happens to meet."""

    def handler(number, frame):
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(SystemExit):
            guest.Guest()(signal.raise_signal, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
