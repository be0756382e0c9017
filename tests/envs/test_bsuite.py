"""bsuite on the real package."""

import gzip
import struct

import numpy as np
import pytest

import embodied
from embodied import envs
from tests.envs import playing

pytestmark = pytest.mark.suites

NAMES = (
    'bandit', 'bandit_noise', 'bandit_scale', 'cartpole', 'cartpole_noise', 'cartpole_scale',
    'cartpole_swingup', 'catch', 'catch_noise', 'catch_scale', 'deep_sea',
    'deep_sea_stochastic', 'discounting_chain', 'memory_len', 'memory_size', 'mountain_car',
    'mountain_car_noise', 'mountain_car_scale', 'umbrella_distract', 'umbrella_length',
)  # fmt: skip


@pytest.mark.parametrize('name', NAMES)
def test_experiments_play_and_end_with_discount_zero(name):
    env = envs.make(f'bsuite_{name}', seed=1)
    assert len(env.obs_space['observation'].shape) == 1
    seen = playing.play(env, 200, resets=[90])
    last, terminal = playing.ends(seen)
    assert last == terminal  # bsuite has no other discount at an end than 0
    assert last or name.startswith(('mountain', 'cartpole'))  # of up to 1000 steps
    assert sum(bool(x['is_first']) for x in seen) >= 2


def test_the_flags_are_those_of_bsuite():
    from bsuite import bsuite

    env, inner = envs.make('bsuite_catch/3', seed=5), bsuite.load('catch', {'seed': 5})
    rng = np.random.default_rng(0)
    for _ in range(200):
        action = rng.integers(3)
        obs, step = env.step({'action': action, 'reset': False}), inner.step(action)
        np.testing.assert_array_equal(obs['observation'], step.observation.reshape(-1))
        assert obs['reward'] == (step.reward or 0)
        assert (obs['is_first'], obs['is_last']) == (step.first(), step.last())
        assert obs['is_terminal'] == (step.discount == 0)


def test_a_time_limit_is_terminal_as_bsuite_says():
    env = envs.make('bsuite_mountain_car')
    stay = {'action': 1, 'reset': False}
    seen = [env.step(stay) for _ in range(1001)]
    assert playing.ends(seen) == ([1000], [1000])
    assert env.step(stay)['is_first']


@pytest.mark.parametrize(
    'name',
    ['catch', 'cartpole', 'memory_len', 'umbrella_length', 'bandit_noise', 'mountain_car'],
)
def test_seeds(name):
    playing.differ(lambda seed: envs.make(f'bsuite_{name}', seed=seed), steps=40)


def test_the_stochastic_sea_repeats_too():
    def reach(seed):
        env = envs.make('bsuite_deep_sea_stochastic', seed=seed)
        return playing.play(env, 300)

    first, again, other = reach(1), reach(1), reach(2)
    assert playing.same(first, again)
    assert not playing.same(first, other)


@pytest.mark.parametrize(
    ('task', 'words'),
    [('catch/99', 'catch/0 to catch/19'), ('cach', 'catch'), ('deep_sea/x', 'deep_sea/20')],
)
def test_unknown_settings_are_named(task, words):
    with pytest.raises(embodied.UserError, match=words):
        envs.make(f'bsuite_{task}')


def test_mnist_from_files_in_place(tmp_path, monkeypatch):
    from bsuite.environments import mnist

    for name, (magic, shape) in {
        'train-images-idx3': (2051, (4, 28, 28)), 'train-labels-idx1': (2049, (4,)),
        't10k-images-idx3': (2051, (2, 28, 28)), 't10k-labels-idx1': (2049, (2,)),
    }.items():  # fmt: skip
        head = struct.pack(f'>{1 + len(shape)}I', magic, *shape)
        with gzip.open(tmp_path / f'{name}-ubyte.gz', 'wb') as file:
            file.write(head + bytes(i % 10 for i in range(int(np.prod(shape)))))
    load = mnist.datasets.load_mnist
    monkeypatch.setattr(mnist.datasets, 'load_mnist', lambda: load(str(tmp_path)))
    seen = playing.play(envs.make('bsuite_mnist/0'), 200)
    last, terminal = playing.ends(seen)
    assert last == terminal == [*range(1, 200, 2)]
    assert seen[0]['observation'].shape == (784,)
    assert {float(x['reward']) for x in seen} == {0, 1, -1}


def test_mnist_without_network_is_said(monkeypatch):
    from urllib import error

    from bsuite.environments import mnist

    def fail():
        raise error.URLError('Name or service not known')

    monkeypatch.setattr(mnist.datasets, 'load_mnist', fail)
    with pytest.raises(embodied.UserError, match='bsuite_mnist/0 downloads MNIST, and cannot'):
        envs.make('bsuite_mnist/0')


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'bsuite', 'debug', '--task', 'bsuite_bandit/0')
