"""A short pass over everything, for each interpreter that CI finds: import, train, go on."""

import json
import os
import subprocess
import sys

import elements
import pytest

from dreamerv3.main import main

pytestmark = pytest.mark.smoke

BLOCKED = """
import sys
for name in ('jax', 'jaxlib', 'equinox', 'optax', 'dreamerv3'):
    sys.modules[name] = None
import embodied
from embodied import Driver, Env, RandomAgent, Replay, UserError, envs, logging, run, streams
print(embodied.__name__)
"""


def test_embodied_imports_without_jax():
    run = subprocess.run([sys.executable, '-c', BLOCKED], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ('embodied\n', 0), run.stderr


def test_a_tiny_run_trains_and_goes_on(tmp_path, capsys, monkeypatch):
    """Also with one sequence per batch, and with environments in processes of their own."""
    # Put back what the run adds for itself.
    monkeypatch.setenv('XLA_FLAGS', os.environ['XLA_FLAGS'])
    flags = '--configs debug --task gym_CartPole-v1 --batch_size 1 --run.envs 2'
    flags += f' --run.train_ratio 1 --logdir {tmp_path}'
    flags += f' --jax.compilation_cache {os.environ["JAX_COMPILATION_CACHE_DIR"]}'
    main([*flags.split(), '--run.steps', '60'])
    assert 'new' in capsys.readouterr().out
    (latest,) = (tmp_path / 'ckpt').glob('*/done')
    main([*flags.split(), '--run.steps', '80', '--run.debug', 'no'])
    assert 'an existing run goes on' in capsys.readouterr().out
    assert list((tmp_path / 'ckpt').glob('*/done')) != [latest]
    lines = [json.loads(x) for x in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
    assert max(x['step'] for x in lines) >= 80
    updates = [x['train/opt/updates'] for x in lines if 'train/opt/updates' in x]
    assert updates == sorted(updates)
    assert updates[-1] > 0
    config = elements.Config.load(tmp_path / 'config.yaml')
    assert (config.batch_size, config.run.steps, config.run.debug) == (1, 80, False)
