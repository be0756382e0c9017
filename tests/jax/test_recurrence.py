"""Scans with a backward pass of their own: the same numbers and gradients as a plain scan."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from embodied.jax import nets, recurrence

KEYS = list(jax.random.split(jax.random.key(0), 8))
T, B, UNITS = 5, 3, 8


class Cell(eqx.Module):
    """A step with all kinds of modules, one of them used twice, one not at all."""

    dense: nets.Layer
    gates: tuple[nets.BlockLinear, ...]
    shared: nets.Product
    shift: nets.Norm
    out: nets.Linear
    idle: nets.Linear

    def __init__(self, norm: str):
        self.dense = nets.dense(KEYS[0], UNITS, UNITS, norm=norm)
        block = nets.BlockLinear(KEYS[1], UNITS, 2 * UNITS, 2)
        self.gates, self.shared = block.columns(2), block.shared(0, 4)
        self.shift = nets.Norm('layer', UNITS)
        self.out = nets.Linear(KEYS[2], UNITS, (2, 4))
        self.idle = nets.Linear(KEYS[3], UNITS, UNITS)


def step(cell, state, xs):
    x, first, key = xs
    state = jnp.where(first[..., None], 0, state)
    x = cell.dense.finish(cell.dense.linear.finish(cell.dense.linear.product(state) + x))
    reset, update = (gate(x) for gate in cell.gates)
    wide = cell.shared.product(x[..., :4])
    state = jnp.tanh(reset + wide[..., :UNITS]) * jax.nn.sigmoid(update) + cell.dense(state)
    state = cell.shift(state) + 0.1 * jax.random.normal(key, state.shape, state.dtype)
    return state, {'out': cell.out(state), 'state': state}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def plain(step, cell, state, xs):
    return jax.lax.scan(lambda state, x: step(cell, state, x), state, xs)


def inputs(batch, steps):
    state = jax.random.normal(KEYS[4], (*batch, UNITS))
    x = jax.random.normal(KEYS[5], (steps, *batch, UNITS))
    first = jnp.zeros((steps, *batch), bool).at[2].set(True)
    return state, (x, first, jax.random.split(KEYS[6], steps))


def total(scan, norm, batch, steps=T):
    """Weighed sum of all outputs as a function of parameters, state and inputs."""
    state, (x, *rest) = inputs(batch, steps)
    params, static = eqx.partition(Cell(norm), eqx.is_array)
    weigh = lambda y, key: (y * jax.random.normal(key, y.shape)).sum()

    def fn(params, state, x):
        last, ys = scan(step, eqx.combine(params, static), state, (x, *rest))
        parts = [last, ys['out'], ys['state']]
        return sum(weigh(y, k) for y, k in zip(parts, KEYS, strict=False)), (last, ys)

    return fn, (params, state, x)


@pytest.mark.parametrize(('norm', 'batch'), [('rms', (B,)), ('layer', (2, B)), ('none', ())])
def test_numbers_and_gradients_are_those_of_a_plain_scan(norm, batch):
    found, expected = (
        jax.jit(jax.value_and_grad(fn, (0, 1, 2), has_aux=True))(*args)
        for fn, args in (total(scan, norm, batch) for scan in (recurrence.scan, plain))
    )
    # Two programs, which XLA may fuse and round in different ways.
    jax.tree.map(close, found[0][1], expected[0][1])
    assert jax.tree.structure(found[1]) == jax.tree.structure(expected[1])
    for mine, theirs in zip(*map(jax.tree.leaves, (found[1], expected[1])), strict=True):
        scale = max(1, np.abs(theirs).max())
        np.testing.assert_allclose(mine / scale, theirs / scale, rtol=0, atol=1e-5)
    idle = found[1][0].idle
    np.testing.assert_array_equal(idle.kernel, 0)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(eqx.tree_at(
        lambda x: (x.idle, x.dense.linear), found[1][0], (None, None))))  # fmt: skip


def test_gradients_are_those_of_small_differences():
    fn, args = total(recurrence.scan, 'rms', (B,))
    value = lambda *args: fn(*jax.tree.map(jnp.asarray, args))[0]
    check_grads(value, args, order=1, modes=['rev'], rtol=2e-2, atol=2e-2)


def test_half_precision_keeps_its_dtypes():
    fn, (params, state, x) = total(recurrence.scan, 'rms', (B,))
    half = lambda x: x.astype(jnp.bfloat16)
    grads, (last, _) = jax.grad(fn, (0, 1, 2), has_aux=True)(params, half(state), half(x))
    assert last.dtype == jnp.bfloat16
    assert {x.dtype for x in jax.tree.leaves(grads[0])} == {jnp.dtype('float32')}
    assert grads[1].dtype == grads[2].dtype == jnp.bfloat16


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_gradients_in_half_precision_are_as_good_as_those_of_a_plain_scan(dtype):
    _, (params, *rest) = total(plain, 'rms', (16,), 64)
    half = [x.astype(dtype) for x in rest]

    def grad(scan, *rest):
        fn, _ = total(scan, 'rms', (16,), 64)
        return jax.jit(jax.grad(fn, has_aux=True))(params, *rest)[0]

    exact, mine, theirs = grad(plain, *rest), grad(recurrence.scan, *half), grad(plain, *half)
    errors = [
        [float(jnp.linalg.norm(exact - found)) for found in founds]
        for exact, *founds in zip(*map(jax.tree.leaves, (exact, mine, theirs)), strict=True)
    ]
    assert all(a <= 1.25 * b for a, b in errors), errors


@pytest.mark.skipif(jax.device_count() < 2, reason='needs two devices, see conftest.py')
def test_a_batch_that_is_split_over_devices_stays_where_it_is():
    fn, (params, *rest) = total(recurrence.scan, 'rms', (4,))
    mesh = jax.sharding.Mesh(jax.devices()[:2], 'd')
    axes = jax.sharding.PartitionSpec('d'), jax.sharding.PartitionSpec(None, 'd')
    rest = [
        jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
        for x, spec in zip(rest, axes, strict=True)
    ]
    text = jax.jit(jax.grad(fn, has_aux=True)).lower(params, *rest).compile().as_text()
    assert 'all-reduce' in text
    assert 'all-gather' not in text


def test_the_backward_pass_forms_no_kernel_gradient_in_its_loop():
    fn, args = total(recurrence.scan, 'rms', (B,))
    jaxpr = jax.make_jaxpr(jax.grad(fn, has_aux=True))(*args)
    scans = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == 'scan']
    assert len(scans) == 2
    kernels = {x.shape for x in jax.tree.leaves(args[0]) if x.ndim > 1}
    for scan in scans:
        outs = {x.aval.shape for x in scan.outvars}
        assert not outs & kernels


def test_parameters_that_it_would_not_see_are_refused():
    layers, x = (nets.Linear(KEYS[0], 3, 3), jnp.ones(3)), jnp.ones((2, 3))
    with pytest.raises(ValueError, match='outside of linear maps and norms'):
        recurrence.scan(lambda layers, carry, x: (carry, x), layers, x[0], x)
