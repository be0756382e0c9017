"""Random play that holds an environment to its contract, and a short training run."""

import os
import pathlib
import subprocess
import sys

import numpy as np

from embodied import spaces, wrappers

ROOT = pathlib.Path(__file__).parents[2]
MAIN = ROOT / 'dreamerv3' / 'main.py'


def play(env, steps, seed=0, resets=(), wrap=True, policy=None):
    """Observations of random play, each checked against its space by the wrappers.

    resets: steps at which the action asks for a new episode. The first step must start one
    whatever the action says. policy(step): values that replace random ones.
    """
    rng = np.random.default_rng(seed)
    env = wrappers.wrap(env) if wrap else env
    act_space = {k: v for k, v in env.act_space.items() if k != 'reset'}
    seen = []
    for step in range(steps):
        act = {k: spaces.sample(v, rng) for k, v in act_space.items()}
        if policy:
            act |= policy(step)
        seen.append(env.step({**act, 'reset': np.bool_(step in resets)}))
    check_flags(seen, resets)
    return seen


def check_flags(seen, resets=()):
    """An episode begins at the start, after every end and at every reset, and nowhere else."""
    for step, obs in enumerate(seen):
        begins = step == 0 or step in resets or seen[step - 1]['is_last']
        assert bool(obs['is_first']) == bool(begins), step
        assert obs['is_last'] or not obs['is_terminal'], step
        if obs['is_first']:
            assert obs['reward'] == 0, step


def ends(seen):
    """Steps at which episodes ended, and those of them that were terminal."""
    last = [i for i, obs in enumerate(seen) if obs['is_last']]
    return last, [i for i in last if seen[i]['is_terminal']]


def same(first, second):
    """Whether two lists of observations are equal."""
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
        for a, b in zip(first, second, strict=True)
    )


def differ(make, seeds=(1, 1, 2), steps=5, **options):
    """Assert that the first two seeds play the same episodes, and the third another."""
    runs = []
    for seed in seeds:
        env = make(seed)
        runs.append(play(env, steps, **options))
        env.close()
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def train(tmp_path, *flags, steps=30):
    """Run main.py with tiny settings and return what it printed."""
    logdir = tmp_path / 'run'
    line = [str(MAIN), *flags, '--logdir', str(logdir), '--run.steps', str(steps)]
    line += ['--run.envs', '1', '--batch_size', '2', '--batch_length', '6']
    line += ['--run.train_ratio', '4', '--logger.outputs', 'jsonl', '--run.report_every', '0']
    cache = os.environ.get('JAX_COMPILATION_CACHE_DIR', '')
    line += ['--jax.compilation_cache', cache]
    done = subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, timeout=280, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    metrics = (logdir / 'metrics.jsonl').read_text()
    assert 'train/loss/' in metrics
    return done.stdout
