"""Runs as a user starts and ends them: signals, kills, faults, full disks, changed flags."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from embodied.checkpoint import checkpoint, snapshot

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    '--configs debug --logger.outputs jsonl --logger.filter score --run.usage.psutil 0 '
    '--run.save_every 0.1 --run.log_every 0 --run.report_every 0 --run.steps 1e9'
)


class Program:
    """A running command, read line by line."""

    def __init__(self, logdir, flags='', double=None, env=(), **options):
        env = dict(env)
        command = [sys.executable, '-W', 'error', '-m', 'tests.run.program']
        self.process = subprocess.Popen(
            [*command, *FLAGS.split(), '--logdir', str(logdir), *flags.split()],
            **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'cwd': ROOT, **options},
            text=True,
            env={**os.environ, 'PYTHONPATH': str(ROOT), 'DOUBLE': repr(double or {}), **env},
        )
        self.out = self.err = ''

    def until(self, pattern, count=1):
        """Read until a line matches, `count` times."""
        while count:
            line = self.process.stdout.readline()
            self.out += line
            assert line, self.out + self.process.stderr.read()
            found = re.search(pattern, line)
            count -= bool(found)
        return found

    def end(self):
        """Return the exit code once the process and all that hold its pipes have ended."""
        with self.process:
            out, self.err = self.process.communicate(timeout=60)
            self.out += out
        return self.process.returncode

    def signal(self, number):
        self.process.send_signal(number)


def step_of(logdir):
    return checkpoint.read(logdir, ['step'])['step']


def first_save(program, logdir):
    """Read until the run has saved, and return the step that it saved first."""
    before = names(logdir)
    while names(logdir) == before:
        program.until('episode/score')
    return step_of(logdir)


def names(logdir):
    latest = logdir / 'ckpt' / 'latest'
    return latest.read_text() if latest.exists() else ''


# Signals.


@pytest.mark.parametrize(
    ('number', 'debug', 'script'),
    [
        (signal.SIGINT, True, 'train_eval'),
        (signal.SIGTERM, True, 'train'),
        (signal.SIGHUP, True, 'train'),
        (signal.SIGTERM, False, 'train'),
    ],
)
def test_a_signal_saves_and_ends_with_0(tmp_path, number, debug, script):
    program = Program(tmp_path, f'--run.debug {debug} --run.save_every 900 --script {script}')
    program.until('episode/score', 40)
    program.signal(number)
    assert program.end() == 0, program.err
    step = step_of(tmp_path)
    assert f'{number.name}: the run ends' in program.out
    assert f'Stopped and saved at step {step:,}; the same command goes on.' in program.out
    assert program.err == ''
    again = Program(tmp_path, f'--run.steps {step + 50} --script {script}')
    assert again.end() == 0, again.err
    assert f'step {step:,}, ' in again.out
    assert 'training starts at once' in again.out
    assert step_of(tmp_path) >= step + 50


def test_a_signal_ends_eval_only_with_its_result(tmp_path):
    assert Program(tmp_path / 'run', '--run.steps 400').end() == 0
    flags = f'--script eval_only --run.from_checkpoint {tmp_path}/run'
    program = Program(tmp_path / 'eval', flags)
    program.until('episode/score', 5)
    program.signal(signal.SIGINT)
    assert program.end() == 0, program.err
    assert re.search(r'Score: mean 9, deviation 0, \d+ episodes\n$', program.out)


def test_a_second_signal_ends_a_run_that_hangs(tmp_path):
    hang = {'fault': 'hang', 'at': 100, 'env': 1}
    program = Program(tmp_path, '--run.debug 0 --run.envs 2 --run.env_timeout 0', hang)
    program.until('episode/score', 20)
    program.signal(signal.SIGINT)
    program.until('second signal')
    while program.process.poll() is None:  # one that comes at once is the same
        program.signal(signal.SIGINT)
        time.sleep(0.05)
    assert program.end() == 130  # and its env processes are gone


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_during_compilation_it_ends_without_saving(tmp_path, number):
    program = Program(tmp_path, '--run.debug 0 --run.envs 1', {'compile': 3})
    program.until('compiling')
    program.signal(number)
    assert program.end() == 0
    assert 'Ended without saving' in program.out
    assert program.err == ''


# Kills.


def kill_and_resume(logdir, times, seed, save_every, flags=''):
    """Kill a run `times` times at random moments after a save of its own."""
    rng, saved = random.Random(seed), 0
    for count in range(times):
        program = Program(logdir, f'--run.save_every {save_every} {flags}')
        if count:
            found = program.until(r'Resumed .*: step ([\d,]+), ([\d,]+) replay items')
            step, items = (int(x.replace(',', '')) for x in found.groups())
            assert step >= saved > 0
            assert items > 0
        saved = first_save(program, logdir)
        program.until('episode/score', rng.randrange(1, 400))
        program.signal(signal.SIGKILL)
        assert program.end() == -9
        assert 'Warning' not in program.out + program.err
        saved = max(saved, step_of(logdir))
    program = Program(logdir, f'--run.steps {saved + 100} {flags}')
    assert program.end() == 0, program.err
    assert step_of(logdir) >= saved + 100


def test_kills_lose_no_more_than_since_the_last_save(tmp_path):
    kill_and_resume(tmp_path, times=2, seed=0, save_every=0.1)


def test_a_kill_leaves_no_env_process(tmp_path):
    kill_and_resume(tmp_path, 1, seed=1, save_every=0.1, flags='--run.debug 0 --run.envs 2')


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_thirty_kills(tmp_path, storage):
    flags = f'--replay.storage {storage}'
    kill_and_resume(tmp_path, times=30, seed=2, save_every=1, flags=flags)


def test_a_truncated_checkpoint_falls_back_with_a_warning(tmp_path):
    assert Program(tmp_path, '--run.steps 300 --run.keep 2').end() == 0
    assert Program(tmp_path, '--run.steps 400 --run.keep 2').end() == 0
    newest, older = checkpoint.find(tmp_path)
    os.truncate(newest / 'agent.npz', 100)
    program = Program(tmp_path, '--run.steps 500 --run.keep 2')
    assert program.end() == 0, program.err
    assert f'Trying the previous one, {older.name}' in program.out
    assert 'Resumed ' in program.out
    assert step_of(tmp_path) == 500


# Resuming with other flags.


def test_changed_flags_are_printed_and_take_effect(tmp_path):
    assert Program(tmp_path, '--run.steps 400').end() == 0
    flags = '--run.steps 600 --run.train_ratio 16 --replay.size 200 --run.log_every 3'
    program = Program(tmp_path, flags)
    assert program.end() == 0, program.err
    for line in (
        'run.steps: 400 -> 600', 'run.train_ratio: 8 -> 16', 'replay.size: 10000 -> 200',
        'run.log_every: 0 -> 3', 'updates per env step: 0.2 (1 per 5)', '200 replay items',
    ):  # fmt: skip
        assert line in program.out
    assert program.out.count(' -> ') == 4
    assert step_of(tmp_path) == 600
    assert len(list(tmp_path.glob('config*.yaml'))) == 2
    again = Program(tmp_path, flags.replace('600', '700'))
    assert again.end() == 0, again.err
    assert again.out.count(' -> ') == 1


def test_missing_replay_data_are_waited_for(tmp_path):
    assert Program(tmp_path, '--run.steps 400').end() == 0
    for path in (tmp_path / 'replay').iterdir():
        path.unlink()
    program = Program(tmp_path, '--run.steps 800')
    assert program.end() == 0, program.err
    assert 'Replay data are missing: 0 items; training waits for 80' in program.out


# Faults.


def refused(program, code, *words):
    """Whether it ends with a code and at most five lines that hold the words."""
    assert program.end() == code, program.out + program.err
    assert len(program.err.splitlines()) <= 5, program.err
    assert all(re.search(word, program.err) for word in words), program.err


@pytest.mark.parametrize('debug', [True, False])
def test_an_env_that_raises_is_restarted_and_then_ends_the_run(tmp_path, debug):
    double = {'fault': 'raise', 'at': 60, 'env': 1}
    flags = f'--run.debug {debug} --run.envs 2 --run.env_restarts 2'
    program = Program(tmp_path, flags, double)
    assert program.end() == 1
    assert program.out.count('Env 1 is restarted (') == 1
    assert program.out.count('Traceback') == 1
    assert 'Env 1 is not restarted: it failed twice in a row with the same' in program.out
    for text in (program.out, program.err):
        assert 'ZeroDivisionError: fault at 60' in text
        assert 'doubles.py' in text  # where it was raised
    assert step_of(tmp_path) > 0


@pytest.mark.parametrize('flags', ['--run.debug True', '--run.debug False'])
def test_a_short_run_whose_env_fails_in_its_first_episode_is_an_error(tmp_path, flags):
    program = Program(tmp_path, f'--run.steps 100 {flags}', {'fault': 'raise', 'at': 5})
    assert program.end() == 1
    assert 'Env 0 is not restarted: it failed before it had finished an episode' in program.out
    assert 'ZeroDivisionError: fault at 5' in program.err


def test_an_env_process_that_dies_costs_its_episode_only(tmp_path):
    double = {'fault': 'kill', 'at': 60, 'env': 1, 'marker': str(tmp_path / 'marker')}
    program = Program(tmp_path / 'run', '--run.debug 0 --run.envs 2 --run.steps 400', double)
    assert program.end() == 0, program.err
    assert 'Env 1 is restarted (1 of 10 an hour' in program.out
    lines = (tmp_path / 'run' / 'scores.jsonl').read_text().splitlines()
    assert len(lines) > 20
    assert all(line.endswith('"episode/score": 9.0}') for line in lines)


@pytest.mark.parametrize('value', ['nan', 'inf'])
def test_a_reward_that_is_not_finite_is_named_and_not_kept(tmp_path, value):
    double = {'fault': value, 'at': 100, 'env': 1}
    program = Program(tmp_path, '--run.envs 2 --run.save_every -1', double)
    refused(
        program, 2, r'^Error: Env 1, step 101: ', "'reward'", f'it is {value}, which is not'
    )
    files = list((tmp_path / 'replay').glob('*.npz'))
    assert files
    for path in files:
        with np.load(path) as data:
            assert np.isfinite(data['reward']).all()


def test_a_loss_that_is_not_finite_is_named(tmp_path):
    program = Program(tmp_path, '--run.save_every -1', {'nan': 9})
    refused(
        program, 1, r'^Error: Update 9 of this run, at step \d+: the metric loss/rew is nan'
    )
    assert checkpoint.read(tmp_path, ['agent'])['agent']['updates'] < 9


def test_a_disk_without_room(tmp_path):
    """The chunks of the replay outgrow what a file may hold, after the first saves."""
    flags = '--run.envs 1 --run.steps 2000 --run.keep 2'
    program = Program(tmp_path, flags, {'file_bytes': 40_000})
    refused(program, 2, r'^Error: The checkpoint of step 2,000 could not be saved: .*too large')
    assert 'Warning: no checkpoint at step' in program.out
    step = step_of(tmp_path)
    assert 0 < step < 2000
    folders = [x for x in (tmp_path / 'ckpt').iterdir() if x.is_dir()]
    assert all(snapshot.manifest(x) for x in folders)  # nothing half written is left
    again = Program(tmp_path, f'--run.steps {step + 100}')
    assert again.end() == 0, again.err
    assert f'step {step:,}, ' in again.out


# Wrong paths.


@pytest.mark.parametrize('script', ['train', 'eval_only'])
def test_a_folder_without_a_checkpoint(tmp_path, script):
    (tmp_path / 'empty').mkdir()
    flags = f'--script {script} --run.from_checkpoint {tmp_path}/empty'
    program = Program(tmp_path / 'run', flags)
    refused(program, 2, 'No checkpoint in .*empty', r'run\.from_checkpoint')


def test_eval_only_needs_a_checkpoint(tmp_path):
    program = Program(tmp_path, '--script eval_only')
    refused(program, 2, r'No checkpoint given.*run\.from_checkpoint')


def test_a_checkpoint_of_the_reference_needs_its_flag(tmp_path):
    source = ROOT / 'tests' / 'golden' / 'reference_run'
    program = Program(tmp_path, f'--run.from_checkpoint {source}')
    refused(program, 2, 'reference implementation', r'--run\.trust_pickle True')
