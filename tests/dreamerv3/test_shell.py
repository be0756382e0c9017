"""Runs by the command line in shells that hold settings of JAX."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    '--configs debug --task dummy_disc --run.steps 120 --run.envs 1 --run.train_ratio 16 '
    '--run.report_every 0.1 --run.log_every -1 --logger.outputs jsonl --run.usage.psutil 0'
)
CLOCKED = ('fps/', 'usage/', 'timer/', 'replay/')
# What is said of a setting; '' where it may stay as it is.
SETTINGS = {
    'JAX_ENABLE_X64=1': 'jax_enable_x64=True',
    'JAX_NUMPY_DTYPE_PROMOTION=strict': 'jax_numpy_dtype_promotion=strict',
    'JAX_DEFAULT_PRNG_IMPL=rbg': 'jax_default_prng_impl=rbg',
    'JAX_THREEFRY_PARTITIONABLE=0': 'jax_threefry_partitionable=False',
    'JAX_DEFAULT_MATMUL_PRECISION=bfloat16': 'jax_default_matmul_precision=bfloat16',
    'JAX_TRANSFER_GUARD=disallow': 'jax_transfer_guard_host_to_device=disallow',
    'JAX_TRANSFER_GUARD=disallow_explicit': 'jax_transfer_guard_host_to_device=',
    'JAX_DEBUG_NANS=1': 'jax_debug_nans=True',
    'JAX_DEBUG_INFS=1': 'jax_debug_infs=True',
    'JAX_DEBUG_KEY_REUSE=1': 'jax_debug_key_reuse=True',
    'JAX_CHECK_TRACER_LEAKS=1': 'jax_check_tracer_leaks=True',
    'JAX_DISABLE_JIT=1': 'JAX_DISABLE_JIT is left aside: --jax.jit False',
    'JAX_NUMPY_RANK_PROMOTION=raise': '',
    'JAX_LEGACY_PRNG_KEY=error': '',
    'JAX_ENABLE_CUSTOM_PRNG=1': '',
    'JAX_EXPLICIT_X64_DTYPES=error': '',
    'JAX_RANDOM_SEED_OFFSET=5': '',
    'JAX_ENABLE_CHECKS=1': '',
    'JAX_LOG_COMPILES=1': '',
    'JAX_PLATFORMS=': '',
    'JAX_PLATFORMS=cpu': '',
    'JAX_TRACEBACK_FILTERING=off': '',
    'JAX_ENABLE_COMPILATION_CACHE=0': '',
}
TORTURE = pytest.mark.torture  # since JAX starts anew for each
REFUSED = [
    ('JAX_ENABLE_X64=maybe', 'JAX refuses a setting of this shell: .*JAX_ENABLE_X64'),
    ('JAX_PLATFORMS=foo', 'JAX finds no device of platform .*--jax.platform cpu'),
    pytest.param('JAX_NUMPY_DTYPE_PROMOTION=foo', '.*_dtype_promotion', marks=TORTURE),
    pytest.param('JAX_DEFAULT_MATMUL_PRECISION=foo', '.*_matmul_precision', marks=TORTURE),
]


def run(folder, setting=''):
    """The process of a short run with a setting."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith('JAX_')}
    cache = ['--jax.compilation_cache', os.environ['JAX_COMPILATION_CACHE_DIR']]
    platform = ['--jax.platform', 'auto' if 'PLATFORMS' in setting else 'cpu']
    return subprocess.run(
        [sys.executable, 'dreamerv3/main.py', *FLAGS.split(), *cache, *platform,
         '--logdir', str(folder)],
        cwd=ROOT, env={**clean, **dict([setting.split('=')] if setting else [])},
        capture_output=True, text=True,
    )  # fmt: skip


def metrics(folder):
    rows = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [
        {k: v for k, v in row.items() if not k.startswith((*CLOCKED, 'report/'))}
        for row in rows
    ]


@pytest.mark.parametrize(('setting', 'words'), REFUSED)
def test_settings_that_jax_refuses_are_one_sentence(setting, words, tmp_path):
    done = run(tmp_path, setting)
    assert done.returncode == 2, done.stderr
    (line,) = [x for x in done.stderr.splitlines() if x.strip()]
    assert re.match(rf'Error: {words}', line)


@pytest.fixture(scope='module')
def usual(tmp_path_factory):
    """Metrics of the run in a shell without settings."""
    folder = tmp_path_factory.mktemp('usual')
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert 'left aside' not in done.stdout
    assert 'leaves aside' not in done.stdout
    return metrics(folder)


@TORTURE
@pytest.mark.parametrize('setting', SETTINGS)
def test_settings_of_jax_change_no_number_and_are_said(setting, usual, tmp_path):
    done = run(tmp_path, setting)
    assert done.returncode == 0, done.stderr
    assert 'Traceback' not in done.stderr
    assert SETTINGS[setting] in done.stdout
    assert done.stdout.count('aside') == bool(SETTINGS[setting])
    found = metrics(tmp_path)
    assert found == usual
    assert sum('train/loss/policy' in x for x in found) >= 3
