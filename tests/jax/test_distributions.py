"""Distributions and the outputs that make them."""

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import concat, distributions, heads, nets
from embodied.jax.runtime import compiler

from .components import load

KEY = jax.random.key(0)
SHAPES = {'binary': (), 'categorical': (2,), 'onehot': (), 'symexp_twohot': ()}
OPTIONS = {
    'categorical': {'classes': 4},
    'onehot': {'classes': 6, 'unimix': 0.05},
    'symexp_twohot': {'bins': 255},
    'symexp_twohot_even': {'bins': 16},
}


@pytest.mark.parametrize('name', [*heads.KINDS, 'symexp_twohot_even'])
def test_outputs_reproduce_the_recording(name):
    data = load(f'head/{name}')
    kind = name.removesuffix('_even')
    output = heads.Output(KEY, 7, SHAPES.get(kind, (3,)), kind, **OPTIONS.get(name, {}))
    for layer in output.linears:
        values = data[f'params/{layer}/kernel'], data[f'params/{layer}/bias']
        where = lambda o, n=layer: (o.linears[n].kernel, o.linears[n].bias)
        output = eqx.tree_at(where, output, values)
    dist = output(load('head')['input'])
    found = {
        'pred': dist.pred,
        'loss': lambda: dist.loss(data['target']),
        'logp': lambda: dist.logp(data['target']),
        'entropy': lambda: dist.entropy(),
    }
    checked = 0
    for part, fn in found.items():
        if part not in data:
            continue
        value = fn()
        if kind == 'onehot' and part != 'pred':
            value = value.sum()  # The recording summed over the batch too.
        assert value.shape == data[part].shape
        scale = float(jnp.abs(data[part].astype(jnp.float32)).max())
        np.testing.assert_allclose(value, data[part], atol=1e-6 * max(scale, 1e-6), rtol=1e-5)
        checked += 1
    assert checked >= 2


def test_kl_reproduces_the_recording():
    data = load('kl')
    a, b = (distributions.OneHot(data[k], 0.01, event=1) for k in 'ab')
    np.testing.assert_allclose(a.kl(b), data['value'], rtol=1e-5)
    data = load('kl_normal')
    a, b = (distributions.Normal(data[f'm{i}'], data[f's{i}']) for i in (1, 2))
    np.testing.assert_allclose(a.kl(b), data['value'], rtol=1e-5)


def test_kl_of_equal_distributions_is_zero():
    dist = distributions.OneHot(jax.random.normal(KEY, (5, 3, 4)), 0.01, event=1)
    np.testing.assert_allclose(dist.kl(dist), 0, atol=1e-6)


@pytest.mark.parametrize(
    ('target', 'bins', 'weights'),
    [
        (0.0, [127], [1.0]),
        (1.0, [131, 132], [0.617329, 0.382671]),
        (100.0, [156, 157], [0.710529, 0.289471]),
        (1e12, [254], [1.0]),
        (-1e12, [0], [1.0]),
    ],
)
def test_twohot_weights_by_hand(target, bins, weights):
    out = distributions.twohot(jnp.array(target), distributions.symexp_bins(255))
    np.testing.assert_array_equal(np.nonzero(out)[0], bins)
    np.testing.assert_allclose(out[np.array(bins)], weights, atol=3e-6)


@pytest.mark.parametrize('count', [255, 17, 16, 5])
def test_twohot_decodes_what_it_encodes(count):
    bins = distributions.symexp_bins(count)
    np.testing.assert_array_equal(bins, -bins[::-1])
    x = jnp.array([-1e5, -3.7, -0.2, 0.0, 0.1, 1.0, 100.0, 12345.6])
    weights = distributions.twohot(x, bins)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    decoded = (np.float64(weights) * np.float64(bins)).sum(-1)
    # What rounding of the weights is worth beside the larger of the two bins.
    upper = np.float64(bins)[np.maximum(1, (np.float64(weights) > 0).argmax(-1) + 1)]
    error = np.abs(decoded - np.float64(x)) / np.maximum(np.abs(x), np.abs(upper))
    assert error.max() < 1e-6


@pytest.mark.parametrize('count', [255, 16])
def test_zero_logits_predict_exactly_zero(count):
    dist = distributions.TwoHot(jnp.zeros((3, count)), distributions.symexp_bins(count))
    assert (dist.pred() == 0).all()
    loss = dist.loss(jnp.array([1e12, -1e30, 3.0]))
    np.testing.assert_allclose(loss, np.log(count), rtol=1e-5)


@pytest.mark.parametrize('count', [255, 254])
def test_uniform_logits_predict_exactly_zero_in_compiled_steps(count):
    """Which may round less than they are told to: 0.16 where products were subtracted."""
    bins = distributions.symexp_bins(count)
    pred = lambda feat, kernel: distributions.TwoHot(feat @ kernel, bins).pred()
    args = jnp.ones((1024, 8)), jnp.zeros((8, count))
    assert (compiler.compiled(jax.jit(pred), *args)(*args) == 0).all()


def test_targets_get_no_gradient():
    bins = distributions.symexp_bins(15)
    for dist in (
        distributions.MSE(jnp.ones(3), event=1),
        distributions.Huber(jnp.ones(3), event=1),
        distributions.Normal(jnp.ones(3), jnp.ones(3), event=1),
        distributions.TwoHot(jnp.ones((3, 15)), bins, event=1),
    ):
        grad = jax.grad(dist.loss)(jnp.array([0.3, -2.0, 5.0]))
        np.testing.assert_array_equal(grad, 0)


def test_targets_that_are_not_available_have_no_error_and_a_finite_gradient():
    target = jnp.array([-jnp.inf, 2.0])
    loss = lambda mean: distributions.MSE(mean, nets.symlog, event=1).loss(target)
    mean = jnp.array([5.0, 0.0])
    np.testing.assert_allclose(loss(mean), nets.symlog(jnp.array(2.0)) ** 2, rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(loss)(mean), [0, -2 * nets.symlog(jnp.array(2.0))], rtol=1e-6
    )


def test_one_hot_samples_carry_the_gradient_of_the_probabilities():
    logits = jnp.array([0.3, -1.0, 2.0])
    direction = jnp.array([1.0, 2.0, 3.0])
    sample = lambda x: (distributions.OneHot(x, 0.01).sample(KEY) * direction).sum()
    probs = lambda x: (jax.nn.softmax(distributions.OneHot(x, 0.01).logits) * direction).sum()
    np.testing.assert_allclose(jax.grad(sample)(logits), jax.grad(probs)(logits), rtol=1e-5)
    assert sorted(np.round(distributions.OneHot(logits).sample(KEY), 6)) == [0, 0, 1]


def test_unimix_keeps_every_class_possible():
    dist = distributions.OneHot(jnp.array([100.0, 0, 0, 0]), 0.01)
    np.testing.assert_allclose(
        jnp.exp(dist.logits), [0.9925, 0.0025, 0.0025, 0.0025], rtol=1e-5
    )


def test_samples_follow_the_distribution():
    logits = jnp.log(jnp.array([0.1, 0.2, 0.7]))
    draws = distributions.Categorical(jnp.broadcast_to(logits, (20000, 3))).sample(KEY)
    share = np.bincount(draws, minlength=3) / 20000
    np.testing.assert_allclose(share, [0.1, 0.2, 0.7], atol=0.01)
    normal = distributions.Normal(jnp.full(20000, 2.0), jnp.full(20000, 0.5)).sample(KEY)
    np.testing.assert_allclose([normal.mean(), normal.std()], [2, 0.5], atol=0.02)


@pytest.mark.parametrize('classes', [1, 2, distributions.FEW, distributions.FEW + 1, 64])
def test_a_uniform_number_selects_the_class_whose_share_it_falls_into(classes):
    probs = np.random.default_rng(0).dirichlet(np.ones(classes))
    ends = np.cumsum(probs)
    inside = jnp.asarray(ends - 0.5 * probs, jnp.float32)
    draw = distributions.Categorical(jnp.log(jnp.tile(probs, (classes, 1)))).select
    np.testing.assert_array_equal(draw(inside), np.arange(classes))
    np.testing.assert_array_equal(draw(jnp.zeros(classes)), 0)
    last = jnp.full(classes, 1 - 2**-24)
    np.testing.assert_array_equal(draw(last), classes - 1)


@pytest.mark.parametrize('classes', [distributions.MANY + 1, 3001, 20000])
def test_draws_of_many_classes_are_those_of_exact_sums(classes):
    """Up to rounding: a number falls into the share of the class that it selects."""
    logits = np.random.default_rng(0).normal(size=(3, classes)).astype(np.float32)
    ends = np.cumsum(np.exp(np.float64(logits)), -1)
    ends /= ends[:, -1:]
    uniform = np.linspace(0, 1 - 2**-24, 300, dtype=np.float32).reshape(100, 3)
    draw = jax.jit(jax.vmap(lambda u: distributions.Categorical(jnp.asarray(logits)).select(u)))
    found = np.asarray(draw(uniform))
    assert (found.min(), found.max()) == (0, classes - 1)
    above = np.take_along_axis(ends, found.T, 1).T
    below = np.where(found, np.take_along_axis(ends, np.maximum(found.T - 1, 0), 1).T, 0)
    assert (below - 1e-6 <= uniform).all()
    assert (uniform <= above + 1e-6).all()


def test_running_sums_are_the_same_in_blocks(monkeypatch):
    x = jax.random.uniform(KEY, (2, 250))
    whole = distributions._running_sums(x)
    monkeypatch.setattr(distributions, 'MANY', 5)  # in three floors
    monkeypatch.setattr(distributions, 'BLOCK', 4)
    np.testing.assert_allclose(distributions._running_sums(x), whole, rtol=1e-6)
    np.testing.assert_allclose(whole, np.cumsum(np.float64(x), -1), rtol=1e-6)


def test_shares_of_draws_of_many_classes():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(10)).repeat(200) / 200  # 2,000 classes in 10 groups
    dist = distributions.Categorical(jnp.log(jnp.float32(probs)))
    draws = jax.jit(jax.vmap(lambda u: dist.select(u)))(jax.random.uniform(KEY, (20000,)))
    share = np.bincount(draws // 200, minlength=10) / 20000
    np.testing.assert_allclose(share, probs.reshape(10, 200).sum(-1), atol=0.015)
    assert len(np.unique(draws)) > 1900 * (probs * 20000 > 3).mean()


def test_normal_numbers_are_the_quantiles_of_uniform_ones():
    uniform = jnp.array([0.0, 0.02275013, 0.5, 0.84134475, 1 - 2**-23])
    found = distributions.draws.normal(uniform)
    np.testing.assert_allclose(found[1:4], [-2, 0, 1], atol=1e-5)
    assert -6 < found[0] < -5 < 5 < found[4] < 6


def test_entropy_bounds():
    low, high = distributions.Categorical(jnp.zeros((3, 2, 4)), event=1).entropy_bounds()
    np.testing.assert_allclose([low, high], [0, 2 * np.log(4)])
    dist = distributions.Normal(jnp.zeros((5, 3)), jnp.ones((5, 3)), (0.1, 1.0), event=1)
    low, high = dist.entropy_bounds()
    np.testing.assert_allclose(high, dist.entropy()[0], rtol=1e-6)
    np.testing.assert_allclose(high - low, 3 * np.log(10), rtol=1e-5)
    assert distributions.Normal(jnp.zeros(3), jnp.ones(3)).entropy_bounds() is None


def test_concat_reproduces_the_recording():
    data = load('concat')
    spaces = {
        'a': elements.Space(np.int32, (), -1, 4),
        'b': elements.Space(np.float32, 3),
        'c': elements.Space(np.float32),
    }
    out = concat.concat(spaces, data, jnp.float32, nets.symlog)
    np.testing.assert_allclose(out, data['output'], atol=1e-6)
    assert concat.width(spaces) == 8


def test_concat_classes():
    assert concat.classes(elements.Space(bool, 3)) == 2
    assert concat.classes(elements.Space(np.int32, (), 0, 5)) == 5
    assert concat.classes(elements.Space(np.int32, 2, -1, [3, 5])) == 5
    shifted = elements.Space(np.int32, (), -3, 3)
    assert concat.classes(shifted) == 6
    out = concat.concat({'x': shifted}, {'x': jnp.array([-3, 2])}, jnp.float32)
    np.testing.assert_array_equal(out, np.eye(6)[[0, 5]])


def test_a_target_that_is_not_a_number_gives_a_loss_that_is_none():
    bins = distributions.symexp_bins(9)
    dist = distributions.TwoHot(jnp.zeros((3, 9)), bins)
    loss = dist.loss(jnp.array([0.0, jnp.nan, jnp.inf]))
    np.testing.assert_array_equal(jnp.isnan(loss), [False, True, False])


def test_numbers_are_cut_by_key():
    spaces = {
        'b': elements.Space(np.int32, (2,), 0, 3), 'a': elements.Space(np.float32, (), -1, 1),
        'c': elements.Space(np.float32, (2, 2), -1, 1),
    }  # fmt: skip
    assert concat.variables(spaces) == 7
    cut = concat.cut(spaces, jnp.arange(14.0).reshape(2, 7))
    assert {k: v.shape for k, v in cut.items()} == {'a': (2,), 'b': (2, 2), 'c': (2, 2, 2)}
    np.testing.assert_array_equal(cut['a'], [0, 7])
    np.testing.assert_array_equal(cut['b'], [[1, 2], [8, 9]])
    np.testing.assert_array_equal(cut['c'][1], [[10, 11], [12, 13]])
