"""Counted arithmetic against hand-computed numbers, and against XLA's where nothing loops."""

import functools

import jax
import jax.numpy as jnp
import pytest

from benchmarks import flops

NHWC = ('NHWC', 'HWIO', 'NHWC')


def zeros(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def count(fn, *args):
    return flops.of_traced(jax.jit(fn).trace(*args))


def test_a_product_and_a_batch_of_products():
    assert count(jnp.matmul, zeros(3, 4), zeros(4, 5)) == 2 * 3 * 4 * 5
    assert count(jnp.matmul, zeros(7, 3, 4), zeros(7, 4, 5)) == 7 * 2 * 3 * 4 * 5
    product = lambda x, y: jnp.einsum('bgi,gio->bgo', x, y)
    assert count(product, zeros(6, 8, 4), zeros(8, 4, 5)) == 2 * 6 * 8 * 4 * 5


def recurrent(weights, xs):
    """A scan with a product of (2, 3) and (3, 3) in each step."""
    step = lambda carry, x: (jnp.tanh(carry @ weights + x), None)
    return jax.lax.scan(step, jnp.zeros((2, 3)), xs)[0].sum()


def test_a_scan_of_products_counts_each_step():
    once = 2 * 2 * 3 * 3
    args = zeros(3, 3), zeros(10, 2, 3)
    assert count(recurrent, *args) == 10 * once
    # Backwards: one product for the carry, and one for the weights, in each step.
    assert count(jax.grad(recurrent), *args) == 3 * 10 * once
    outer = lambda weights, xs: jax.lax.map(functools.partial(recurrent, weights), xs)
    assert count(outer, args[0], zeros(4, 10, 2, 3)) == 4 * 10 * once


def test_results_that_nobody_uses_do_not_count():
    def fn(x):
        unused = x @ x @ x
        return x @ x, unused.shape[0]

    assert count(fn, zeros(3, 3)) == 2 * 3**3
    both = lambda x: jax.lax.scan(lambda c, x: (c + 1, x @ x), 0, x)[0]
    assert count(both, zeros(5, 3, 3)) == 0


def test_of_branches_the_largest_counts():
    fn = lambda x, y: jax.lax.cond(x[0, 0] > 0, lambda: x @ y @ y, lambda: x @ y)
    assert count(fn, zeros(2, 3), zeros(3, 3)) == 2 * 2 * (2 * 3 * 3)


def test_a_loop_of_unknown_length_is_refused():
    rounds = lambda body: lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, body, x)
    with pytest.raises(ValueError, match='number of rounds is not known'):
        count(rounds(lambda x: x @ x), zeros(3, 3))
    assert count(rounds(lambda x: x + 1), zeros(3, 3)) == 0


def test_padding_does_not_count():
    conv = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(1,),
        dimension_numbers=('NWC', 'WIO', 'NWC'),
    )
    args = zeros(2, 4, 3), zeros(5, 3, 7)
    # Outputs of a row of 4 meet 3, 4, 4, 3 of the 5 taps; alone they would meet none outside.
    assert count(functools.partial(conv, padding='SAME'), *args) == 2 * 2 * 3 * 7 * 14
    args = zeros(2, 6, 3), zeros(5, 3, 7)
    assert count(functools.partial(conv, padding='VALID'), *args) == 2 * 2 * 3 * 7 * 2 * 5


@pytest.mark.parametrize(
    'options',
    [
        {'padding': 'SAME'},
        {'padding': 'SAME', 'window_strides': (2, 3)},
        {'padding': ((1, 2), (0, 3)), 'rhs_dilation': (2, 1)},
        {'padding': ((2, 2), (2, 2)), 'lhs_dilation': (2, 3)},
        {'padding': 'VALID', 'feature_group_count': 2},
        {'padding': 'VALID', 'batch_group_count': 2},
    ],
)
def test_convolutions_count_as_in_xla(options):
    conv = functools.partial(
        jax.lax.conv_general_dilated, dimension_numbers=NHWC,
        **{'window_strides': (1, 1), **options},
    )  # fmt: skip
    groups = options.get('feature_group_count', 1)
    args = zeros(4, 9, 8, 6), zeros(5, 3, 6 // groups, 4)
    assert count(conv, *args) == jax.jit(conv).lower(*args).cost_analysis()['flops']
    if groups == 1 and 'batch_group_count' not in options:
        grads = jax.vjp(conv, *(jnp.zeros(x.shape) for x in args))[1]
        found = jax.jit(grads).lower(jax.eval_shape(conv, *args))
        assert count(grads, jax.eval_shape(conv, *args)) == found.cost_analysis()['flops']


def test_loops_of_a_compiled_function():
    args = jnp.zeros((3, 3)), jnp.zeros((10, 2, 3))
    assert flops.loops(jax.jit(recurrent).lower(*args).compile()) == 1
    assert flops.loops(jax.jit(jax.grad(recurrent)).lower(*args).compile()) == 2
    assert flops.loops(jax.jit(jnp.matmul).lower(*args[:1], args[0]).compile()) == 0


def test_kernels_that_do_the_same_are_one():
    def fn(x, y, z):
        return jnp.sin(x) * x, jnp.sin(y) * y, jnp.cos(z) * z, jnp.sin(z[:2]) * z[:2]

    compiled = jax.jit(fn).lower(*[jax.ShapeDtypeStruct((1000,), jnp.float32)] * 3).compile()
    assert flops.kernels(compiled) == 3
    assert flops.kernels(jax.jit(jnp.matmul).lower(*jnp.ones((2, 4, 4))).compile()) == 0
