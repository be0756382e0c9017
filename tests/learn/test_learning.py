"""Whether the agent learns: two small games in every test run, the curves of `make learn`.

The curves are compared with those of the public reference under the same flags: on catch
its mean score per thousand env steps was
-0.8 -0.6 -0.6 -0.6 -0.5 -0.4 -0.3 -0.1 -0.2 0.5 0.7 0.8 1.0 and
-0.5 -0.6 -0.6 -0.7 -0.4 -0.1 0.3 0.6 0.6 0.5 0.6 0.7 0.6 (two seeds),
on CartPole-v1 27, 112, 372, 416, 473, 500, 500 (one seed).
"""

import numpy as np
import pytest

from . import curve, games

COMMON = {
    'jax.platform': 'cpu', 'jax.compute_dtype': 'float32', 'run.envs': 1,
    'run.report_every': 0, 'run.save_every': 0, 'run.log_every': 60,
}  # fmt: skip
TINY = {
    **COMMON,
    'agent.dyn.rssm': {'deter': 64, 'hidden': 32, 'stoch': 8, 'classes': 8, 'blocks': 4},
    r'.*\.units': 32, r'.*\.layers': 1, r'.*\.bins': 33, 'agent.imag_length': 5,
    'agent.opt': {'lr': 1e-3, 'warmup': 50},
    # So short a run leaves no time to come back from a policy that settled too early.
    'agent.imag_loss.actent': 1e-2,
    'batch_size': 8, 'batch_length': 16, 'report_length': 8,
}  # fmt: skip
CURVE = {
    **COMMON,
    'agent.dyn.rssm': {'deter': 256, 'hidden': 64, 'stoch': 16, 'classes': 8},
    r'.*\.units': 64, r'.*\.bins': 63, 'agent.opt': {'lr': 3e-4, 'warmup': 200},
    'batch_size': 16, 'batch_length': 16, 'report_length': 16, 'run.train_ratio': 128,
}  # fmt: skip


@pytest.mark.timeout(900)
def test_learns_what_it_sees(tmp_path):
    flags = {**TINY, 'run.steps': 3000, 'run.train_ratio': 64}
    scores = curve.train(tmp_path, flags, games.Look)
    means = curve.thousands(scores, 500)
    assert means[0] < 0.6 * 4
    assert means[-1] >= 0.9 * 4


@pytest.mark.timeout(900)
def test_learns_what_it_saw_two_steps_earlier(tmp_path):
    flags = {**TINY, 'run.steps': 3500, 'run.train_ratio': 128}
    scores = curve.train(tmp_path, flags, games.Remember)
    means = curve.thousands(scores, 500)
    assert means[0] < 0.7
    assert means[-1] >= 0.9


@pytest.mark.learn
@pytest.mark.timeout(10800)
def test_catch_is_learned_as_fast_as_by_the_reference(tmp_path):
    curves = []
    for seed in range(3):
        flags = {**CURVE, 'run.steps': 11000, 'seed': seed}
        make_env = lambda index, seed=seed: games.Catch(100 * seed + index)
        scores = curve.train(tmp_path / str(seed), flags, make_env, ['size1m'])
        curves.append(curve.thousands(scores))
        print('catch', seed, curves[-1])
    assert np.mean([c[10] for c in curves]) >= 0.5


@pytest.mark.learn
@pytest.mark.timeout(10800)
def test_cartpole_is_learned_as_fast_as_by_the_reference(tmp_path):
    curves = []
    for seed in range(3):
        flags = {**CURVE, 'run.steps': 5000, 'seed': seed, 'task': 'gym_CartPole-v1'}
        scores = curve.train(tmp_path / str(seed), flags, blocks=['size1m'])
        curves.append(curve.thousands(scores))
        print('cartpole', seed, curves[-1])
    assert np.mean([c[4] for c in curves]) >= 400
