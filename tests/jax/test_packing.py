"""Trees of parameters as one array: nothing is lost, and each array keeps its own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import flops
from embodied.jax import packing
from embodied.jax.packing import WIDTH, Packed
from embodied.jax.runtime import names

SHAPES = {'scalar': (), 'few': (3,), 'none': (0, 4), 'row': (WIDTH,), 'more': (5, 7, 60)}


@pytest.fixture(scope='module')
def tree():
    rng = np.random.default_rng(0)
    draw = lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    return {'a': {k: draw(v) for k, v in SHAPES.items()}, 'b': [draw((2, 600)), draw((3,))]}


@pytest.fixture(scope='module')
def packed(tree):
    return Packed.of(tree)


def same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('count', [0, 5, -5])
def test_what_is_packed_comes_out_again(tree, packed, count):
    same(packed.unpack(jnp.array(count)), tree)
    same(jax.jit(lambda packed, count: packed.unpack(count))(packed, count), tree)


def test_other_platforms_cut_it_in_another_way_into_the_same(tree, packed):
    flat = names.flatten(tree)
    for rows in (packed.rows, np.array(packed.rows)):
        pieces = packed.layout.pieces(rows)
        assert list(pieces) == list(flat)
        same(pieces, flat)


def test_each_array_has_rows_of_its_own(tree, packed):
    sizes = [x.size for x in jax.tree.leaves(tree)]
    assert packed.rows.shape == (sum(-(-size // WIDTH) for size in sizes), WIDTH)
    np.testing.assert_allclose(
        packed.squares(), [jnp.square(x).sum() for x in jax.tree.leaves(tree)], rtol=1e-5
    )
    factors = jnp.arange(1.0, 1 + len(sizes))
    scaled = Packed(packed.rows * packed.each(factors), packed.layout)
    expected = [x * f for x, f in zip(jax.tree.leaves(tree), factors, strict=True)]
    same(jax.tree.leaves(scaled.unpack(jnp.array(0))), expected)


def test_outside_the_pieces_have_names_and_the_rows_none(tree, packed):
    state = {'opt': {'mean': packed, 'count': jnp.array(3)}}
    layouts = packing.layouts(state)
    assert list(layouts) == ['opt/mean/rows']
    flat = {k: np.array(v) for k, v in names.flatten(state).items()}
    apart = packing.apart(flat, layouts)
    assert {*apart} == {'opt/count'} | {f'opt/mean/{k}' for k in names.flatten(tree)}
    np.testing.assert_array_equal(apart['opt/mean/a/more'], tree['a']['more'])
    joined = packing.joined(apart, layouts)
    assert joined.keys() == flat.keys()
    for name, value in flat.items():
        np.testing.assert_array_equal(joined[name], value)
    del apart['opt/mean/b/0']
    with pytest.raises(KeyError, match='opt/mean/b/0'):
        packing.joined(apart, layouts)


def test_one_kernel_serves_all_arrays_of_a_size():
    """On CPUs. Where each had one of its own, they would be a seventh of what is compiled."""
    packed = Packed.of({str(i): jnp.ones((2, i % 3 + 1)) for i in range(12)})
    unpack = jax.jit(lambda rows, count: packing.Packed(rows, packed.layout).unpack(count))
    compiled = unpack.lower(packed.rows, jnp.array(0)).compile()
    assert flops.kernels(compiled) <= 3 + 3  # the loop that is never run has some
