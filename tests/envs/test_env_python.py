"""Runs whose environments live in another interpreter (run.env_python)."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from embodied.core import foreign
from tests.envs import playing, toys

OLD = os.environ.get('OLD_PYTHON', '')
old = [
    pytest.mark.suites,
    pytest.mark.skipif(not OLD, reason='OLD_PYTHON names no interpreter with numpy 1 and gym'),
]


def run(logdir, *flags):
    line = [str(playing.MAIN), '--configs', 'debug', '--logdir', str(logdir), *flags]
    line += ['--random_agent', 'True', '--logger.outputs', 'jsonl', '--run.envs', '2']
    return subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, timeout=200, cwd=logdir.parent
    )


def test_a_run_with_this_interpreter_started_anew(tmp_path):
    flags = ['--run.steps', '250', '--run.env_python', sys.executable]
    done = run(tmp_path / 'run', *flags)
    assert done.returncode == 0, done.stderr
    assert f'2 envs, one process each of {sys.executable}' in done.stdout
    plain = run(tmp_path / 'plain', '--run.steps', '250')
    scores = [(tmp_path / x / 'scores.jsonl').read_text() for x in ('run', 'plain')]
    assert scores[0] == scores[1]
    assert len(scores[0].splitlines()) == 2, plain.stderr


def test_what_is_no_interpreter_is_refused(tmp_path):
    done = run(tmp_path / 'run', '--run.env_python', 'no_such_python')
    assert done.returncode == 2
    assert (
        done.stderr == 'Error: --run.env_python no_such_python is no program that can be run.\n'
    )
    assert not (tmp_path / 'run').exists()


def test_a_mistake_there_is_said_here(tmp_path):
    flags = ['--run.env_python', sys.executable, '--task', 'gym_CartPole-v1x']
    done = run(tmp_path / 'run', *flags)
    assert done.returncode == 2
    assert 'Cannot make --task gym_CartPole-v1x' in done.stderr
    assert 'Traceback' not in done.stderr


class TestOld:
    pytestmark = old

    def test_another_python_and_another_numpy(self):
        env = foreign.make(OLD, toys.versions, 0)
        obs = env.step({'action': np.int32(0), 'reset': np.bool_(True)})
        python, numpy = tuple(obs['versions'][:2]), tuple(obs['versions'][2:])
        assert (python, numpy) == ((3, 10), (1, 23))
        assert python < sys.version_info[:2]
        env.close()

    @pytest.mark.parametrize('script', ['train', 'train_eval', 'parallel'])
    def test_scripts_play_the_old_gym(self, tmp_path, script):
        flags = ['--task', 'gym_CartPole-v1', '--run.env_python', OLD, '--script', script]
        flags += ['--run.steps', '120', '--run.eval_envs', '1', '--run.report_every', '-1']
        done = run(tmp_path / 'run', *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = (tmp_path / 'run' / 'scores.jsonl').read_text().splitlines()
        scores = [json.loads(x).get('episode/score') for x in lines]
        assert all(8 <= x < 500 for x in scores if x is not None)
        assert any(x is not None for x in scores)

    def test_the_script_of_environments_runs_there(self, tmp_path):
        """Over the network, and without JAX, which that interpreter does not have."""
        with socket.socket() as probe:
            probe.bind(('localhost', 0))
            port = probe.getsockname()[1]
        flags = ['--task', 'gym_CartPole-v1', '--run.actor_addr', f'localhost:{port}']
        # Long enough for all environments to be there before the run is over.
        flags += ['--run.steps', '800', '--run.eval_envs', '1']
        line = ['--configs', 'debug', '--logdir', str(tmp_path / 'run'), '--run.envs', '2']
        away = subprocess.Popen(
            [OLD, '-m', 'dreamerv3.main', *line, *flags, '--script', 'parallel_envs'],
            cwd=playing.ROOT,
        )
        with away:
            try:
                flags += ['--script', 'parallel', '--run.remote_envs', 'True']
                done = run(tmp_path / 'run', *flags)
                assert done.returncode == 0, done.stdout + done.stderr
                assert away.wait(60) == 0
            finally:
                away.kill()
        assert 'episode/score' in (tmp_path / 'run' / 'scores.jsonl').read_text()

    def test_it_trains(self, tmp_path):
        flags = ['--task', 'gym_CartPole-v1', '--run.env_python', OLD]
        playing.train(tmp_path, '--configs', 'debug', *flags, steps=60)
