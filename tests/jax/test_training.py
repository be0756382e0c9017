"""Optimizer, normalisers, slow model, names."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import nets
from embodied.jax.normalize import Normalizer
from embodied.jax.optimizer import LossScale, Optimizer, learning_rate
from embodied.jax.runtime import names
from embodied.jax.slowmodel import SlowModel

from .components import load

KEY = jax.random.key(0)
NORMS = {
    'meanstd': {'impl': 'meanstd'},
    'perc': {'impl': 'perc', 'limit': 1.0, 'debias': False},
    'perc_debias': {'impl': 'perc', 'limit': 1.0, 'debias': True},
}


@pytest.mark.parametrize('name', NORMS)
def test_normalisers_reproduce_the_recording(name):
    norm, data = Normalizer(**NORMS[name]), load(f'normalize/{name}')
    for x, expected in zip(data['input'], data['offset_scale'], strict=True):
        norm = norm.update(x)
        np.testing.assert_allclose(norm.offset_scale(), expected, rtol=2e-5)


def test_return_normaliser_reaches_the_spread_and_ignores_small_ones():
    update = eqx.filter_jit(lambda norm, x: norm.update(x))
    norm, x = Normalizer('perc', limit=1.0, debias=False), jnp.linspace(0, 100, 1001)
    for _ in range(2000):
        norm = update(norm, x)
    np.testing.assert_allclose(norm.offset_scale()[1], 90, rtol=0.01)
    norm = Normalizer('perc', limit=1.0, debias=False)
    for _ in range(10):
        norm = update(norm, jnp.full(1001, 7.0))
    assert norm.offset_scale()[1] == 1


def test_no_normaliser_changes_nothing():
    norm = Normalizer('none')
    assert norm.update(jnp.ones(3)) is norm
    assert norm.offset_scale() == (0, 1)
    with pytest.raises(ValueError, match='Unknown normaliser'):
        Normalizer('median')


def laprop(grads, params, lr, agc=0.3, b1=0.9, b2=0.999, wd=0.0, nesterov=False):
    """Slow reference on plain numbers in float64."""
    nu, mu = np.zeros_like(params), np.zeros_like(params)
    for i, g in enumerate(grads, 1):
        limit = agc * max(1e-3, np.linalg.norm(params))
        g = g / max(1, np.linalg.norm(g) / limit)
        nu = b2 * nu + (1 - b2) * g * g
        g = g / (np.sqrt(nu / (1 - b2**i)) + 1e-20)
        mu = b1 * mu + (1 - b1) * g
        ahead = b1 * mu + (1 - b1) * g if nesterov else mu
        params = params - lr * (ahead / (1 - b1**i) + wd * params)
    return params


@pytest.mark.parametrize(('wd', 'nesterov'), [(0.0, False), (0.1, False), (0.0, True)])
def test_optimizer_against_a_numpy_loop(wd, nesterov):
    rng = np.random.default_rng(0)
    params = {'a': {'kernel': rng.normal(size=(3, 4))}, 'b': {'bias': rng.normal(size=4)}}
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    directions = [jax.tree.map(lambda x: rng.normal(size=x.shape), params) for _ in range(4)]
    opt, moved = Optimizer(params, lr=0.01, warmup=0, wd=wd, nesterov=nesterov), params
    for direction in directions:
        loss = lambda p, d=direction: (
            sum((a * b).sum() for a, b in zip(*map(jax.tree.leaves, (p, d)), strict=True)), None
        )  # fmt: skip
        opt, moved, _, _, metrics = opt.update(loss, moved)
    for module, leaf, decay in (('a', 'kernel', wd), ('b', 'bias', 0.0)):
        expected = laprop(
            [d[module][leaf] for d in directions], np.float64(params[module][leaf]), 0.01,
            wd=decay, nesterov=nesterov,
        )  # fmt: skip
        np.testing.assert_allclose(moved[module][leaf], expected, rtol=1e-5)
    assert int(metrics['updates']) == 4
    assert int(metrics['param_count']) == 16


def test_schedules():
    assert learning_rate(1.0, 'const', 0, 0)(10**6) == 1
    warm = learning_rate(1.0, 'const', 4, 0)
    np.testing.assert_allclose([warm(i) for i in range(6)], [0, 0.25, 0.5, 0.75, 1, 1])
    linear = learning_rate(1.0, 'linear', 2, 12)
    np.testing.assert_allclose([linear(i) for i in (0, 1, 2, 7, 12, 99)],
                               [0, 0.5, 1, 0.55, 0.1, 0.1], rtol=1e-6)  # fmt: skip
    cosine = learning_rate(1.0, 'cosine', 2, 12)
    np.testing.assert_allclose(
        [cosine(i) for i in (2, 7, 12, 99)], [1, 0.55, 0.1, 0.1], rtol=1e-6
    )
    with pytest.raises(ValueError, match='anneal > warmup'):
        learning_rate(1.0, 'cosine', 10, 10)
    with pytest.raises(ValueError, match='Unknown schedule'):
        learning_rate(1.0, 'step', 0, 10)


def test_nothing_is_divided_by_an_eps_of_zero():
    with pytest.raises(ValueError, match=r'--agent\.opt\.eps is 0'):
        Optimizer({'x': jnp.ones(3)}, eps=0)


def test_a_zero_gradient_moves_nothing():
    params = {'x': jnp.ones(3)}
    opt, moved, *_ = Optimizer(params, warmup=0).update(lambda p: (0 * p['x'].sum(), 0), params)
    np.testing.assert_array_equal(moved['x'], 1)
    assert int(opt.step) == 1


def test_overflow_changes_nothing_but_the_scale():
    params = {'x': jnp.ones(3)}
    opt = Optimizer(params, warmup=0, lr=0.1, loss_scaling=True)
    bad = lambda p: ((p['x'] * jnp.inf).sum(), None)
    good = lambda p: ((p['x'] * 2).sum(), None)
    opt2, moved, _, _, metrics = opt.update(bad, params)
    np.testing.assert_array_equal(moved['x'], 1)
    assert int(opt2.step) == 0
    assert float(opt2.scaling.scale) == 5e3
    assert float(metrics['grad_overflow']) == 1
    before, after = names.flatten(opt.state), names.flatten(opt2.state)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    scaled, plain = opt2.update(good, params), Optimizer(params, warmup=0, lr=0.1)
    np.testing.assert_allclose(scaled[1]['x'], plain.update(good, params)[1]['x'], rtol=1e-6)
    assert float(scaled[4]['grad_norm']) == pytest.approx(2 * np.sqrt(3))


def test_loss_scale_doubles_after_a_thousand_good_steps_within_its_bounds():
    update = eqx.filter_jit(lambda s, ok: s.update(ok))
    scale, ok = LossScale(), jnp.array(True)
    for _ in range(999):
        scale = update(scale, ok)
    assert float(scale.scale) == 1e4
    assert float(update(scale, ok).scale) == 2e4
    high = eqx.tree_at(lambda s: s.scale, scale, jnp.array(1e5))
    assert float(update(high, ok).scale) == 1e5
    low = eqx.tree_at(lambda s: s.scale, scale, jnp.array(1e-4))
    np.testing.assert_allclose(update(low, ~ok).scale, 1e-4)


def test_slow_model_starts_as_a_copy_and_moves_every_so_often():
    fast = nets.Linear(KEY, 2, 2)
    slow = SlowModel(fast, rate=0.5, every=2)
    np.testing.assert_array_equal(slow.copy.kernel, fast.kernel)
    assert slow.copy.kernel is not fast.kernel
    moved = eqx.tree_at(lambda m: m.kernel, fast, fast.kernel + 8)
    gaps = []
    for _ in range(4):
        slow = slow.update(moved)
        gaps.append(float(jnp.abs(moved.kernel - slow.copy.kernel).max()))
    np.testing.assert_allclose(gaps, [4, 4, 2, 2], rtol=1e-5)


def test_names_follow_the_attributes_and_survive_sorting():
    mlp = nets.MLP(KEY, 3, 2, 4)
    flat = names.flatten({'net': mlp})
    assert list(flat)[:3] == [
        'net/layers/0/linear/kernel', 'net/layers/0/linear/bias', 'net/layers/0/norm/scale',
    ]  # fmt: skip
    shuffled = dict(sorted(flat.items()))
    back = names.unflatten({'net': mlp}, shuffled)
    assert eqx.tree_equal(back, {'net': mlp})
    with pytest.raises(KeyError):
        names.unflatten({'net': mlp}, {})


def test_names_leave_out_the_container_of_the_model_but_no_key_of_that_name():
    class State(eqx.Module):
        model: dict

    state = State({'model': jnp.ones(1), 'enc': jnp.ones(1)})
    assert list(names.flatten(state)) == ['enc', 'model']


def test_names_that_collide_are_refused():
    with pytest.raises(ValueError, match='not unique'):
        names.flatten({'a/b': jnp.ones(1), 'a': {'b': jnp.ones(1)}})
