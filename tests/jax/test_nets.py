"""Layers against recorded figures, slow loops, and identities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import nets

from .components import load

KEY = jax.random.key(0)


@pytest.mark.parametrize('impl', ['rms', 'rms1em8', 'layer'])
def test_norms_reproduce_the_recording(impl):
    data = load('norm')
    norm = nets.Norm(impl, 8)
    norm = eqx.tree_at(lambda n: n.scale, norm, data[f'{impl}/scale'])
    if impl == 'layer':
        norm = eqx.tree_at(lambda n: n.shift, norm, data['layer/shift'])
    np.testing.assert_allclose(norm(data['input']), data[f'{impl}/output'], atol=2e-6)


def test_norm_computes_in_float32_and_returns_the_input_dtype():
    x = jnp.array([[100.0, 300.0]], jnp.bfloat16)
    y = nets.Norm('rms', 2)(x)
    assert y.dtype == jnp.bfloat16
    exact = np.array([[100, 300]]) / np.sqrt((100**2 + 300**2) / 2)
    np.testing.assert_allclose(np.asarray(y, np.float32), exact, rtol=2**-8)
    assert nets.Norm('none', 2)(x) is x


@pytest.mark.parametrize('name', ['gelu', 'mish', 'none', 'relu', 'relu2', 'silu', 'swiglu'])
def test_activations_reproduce_the_recording(name):
    out = nets.activation(name)(load('norm')['input'])
    np.testing.assert_allclose(out, load('act')[name], atol=1e-6)


def test_transposed_convolution_reproduces_the_recording():
    data = load('transp')
    conv = nets.Conv2D(KEY, 3, 5, 5, 2, transposed=True)
    conv = eqx.tree_at(lambda c: (c.kernel, c.bias), conv, (data['kernel'], data['bias']))
    np.testing.assert_allclose(conv(data['input']), data['output'], atol=1e-5)


def test_block_linear_is_a_linear_of_the_block_diagonal():
    block = nets.BlockLinear(KEY, 6, 4, 2)
    dense = np.zeros((6, 4), np.float32)
    dense[:3, :2], dense[3:, 2:] = block.kernel
    x = jax.random.normal(KEY, (5, 6))
    np.testing.assert_allclose(block(x), np.asarray(x) @ dense, atol=1e-6)


def test_shares_of_a_linear_sum_to_the_whole():
    linear = nets.Linear(KEY, 7, (2, 3))
    x = jax.random.normal(KEY, (4, 7))
    shares = linear.rows(0, 3).product(x[:, :3]) + linear.rows(3, 4).product(x[:, 3:])
    np.testing.assert_allclose(linear.finish(shares), linear(x), atol=1e-6)
    assert linear(x).shape == (4, 2, 3)


def test_max_pool_and_upsample_against_loops():
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype(np.float32)
    pooled = np.array(
        [[[b[i : i + 2, j : j + 2].max((0, 1)) for j in (0, 2, 4)] for i in (0, 2)] for b in x]
    )
    np.testing.assert_array_equal(nets.max_pool(jnp.asarray(x)), pooled)
    big = nets.upsample(jnp.asarray(x))
    for i in range(8):
        np.testing.assert_array_equal(big[:, i, ::2], x[:, i // 2])
        np.testing.assert_array_equal(big[:, i, 1::2], x[:, i // 2])


def test_fans_count_all_leading_axes():
    assert nets.fans((3, 4)) == (3, 4)
    assert nets.fans((5, 5, 3, 8)) == (75, 200)
    assert nets.fans((8, 16, 32)) == (128, 256)


@pytest.mark.parametrize('shape', [(64, 256), (5, 5, 16, 32), (8, 16, 64)])
def test_initial_kernels_have_the_variance_of_their_fan(shape):
    fan_in, fan_out = nets.fans(shape)
    fans = {'in': fan_in, 'out': fan_out, 'avg': (fan_in + fan_out) / 2}
    for mode, fan in fans.items():
        kernel = nets.init_kernel(KEY, shape, f'trunc_normal_{mode}', 2.0)
        np.testing.assert_allclose(kernel.std(), 2 * np.sqrt(1 / fan), rtol=0.05)
        assert jnp.abs(kernel).max() <= 2 * 2 * 1.1368 * np.sqrt(1 / fan) * 1.0001
    uniform = nets.init_kernel(KEY, shape, 'uniform', 1.0)
    assert 0.99 * np.sqrt(1 / fan_in) < jnp.abs(uniform).max() <= np.sqrt(1 / fan_in)
    assert not nets.init_kernel(KEY, shape, 'zeros', 1.0).any()
    assert not nets.init_kernel(KEY, shape, 'trunc_normal_in', 0.0).any()
    normed = nets.init_kernel(KEY, shape, 'normed', 1.0)
    norms = np.linalg.norm(np.asarray(normed).reshape(-1, shape[-1]), axis=0)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match='Unknown activation'):
        nets.activation('softmox')
    with pytest.raises(ValueError, match='Unknown norm'):
        nets.Norm('batch', 3)
    with pytest.raises(ValueError, match='Unknown initialiser'):
        nets.init_kernel(KEY, (2, 2), 'xavier', 1.0)
    with pytest.raises(ValueError, match='do not divide'):
        nets.BlockLinear(KEY, 6, 4, 4)


def test_symlog_and_symexp_are_inverse_and_odd():
    x = jnp.array([-1e4, -1.0, -1e-3, 0.0, 1e-3, 1.0, 1e4])
    np.testing.assert_allclose(nets.symexp(nets.symlog(x)), x, rtol=1e-5)
    np.testing.assert_array_equal(nets.symlog(-x), -nets.symlog(x))


def test_layers_compute_in_the_dtype_of_their_input():
    x = jnp.ones((2, 4), jnp.bfloat16)
    assert nets.MLP(KEY, 4, 2, 8)(x).dtype == jnp.bfloat16
    assert nets.MLP(KEY, 4, 1, 8, act='swiglu')(x).shape == (2, 8)
    assert nets.MLP(KEY, 4, 0, 8)(x) is x


@pytest.mark.parametrize('taps', [1, 2, 3, 4, 5, 6, 7])
def test_convolution_after_upsampling_is_exact(taps):
    conv = nets.Conv2D(KEY, 3, 4, taps)
    conv = eqx.tree_at(lambda c: c.bias, conv, jnp.arange(4.0))
    x = jax.random.normal(KEY, (2, 3, 5, 6, 3))
    plain, fast = conv(nets.upsample(x)), conv.after_upsampling(x)
    assert fast.shape == (2, 3, 10, 12, 4)
    np.testing.assert_allclose(fast, plain, atol=2e-5)


def test_shares_of_a_block_linear_sum_to_the_whole():
    block = nets.BlockLinear(KEY, 8, 6, 2)
    block = eqx.tree_at(lambda x: x.bias, block, jnp.arange(6.0))
    x = jax.random.normal(KEY, (5, 2, 4))
    flat = lambda x: x.reshape(5, -1)
    whole = block(flat(x))
    parts = block.rows(0, 1).product(flat(x[..., :1])) + block.rows(1, 3).product(
        flat(x[..., 1:])
    )
    np.testing.assert_allclose(block.finish(parts), whole, atol=1e-6)
    common = jnp.broadcast_to(x[:, :1], x.shape)
    shared = block.shared(0, 4).product(x[:, 0])
    np.testing.assert_allclose(block.finish(shared), block(flat(common)), atol=1e-6)


def test_columns_of_a_block_linear_are_shares_of_every_group():
    block = nets.BlockLinear(KEY, 8, 12, 2)
    block = eqx.tree_at(lambda x: x.bias, block, jnp.arange(12.0))
    x = jax.random.normal(KEY, (5, 3, 8))
    whole = block(x).reshape(5, 3, 2, 3, 2)
    for i, part in enumerate(block.columns(3)):
        np.testing.assert_allclose(part(x).reshape(5, 3, 2, 2), whole[..., i, :], atol=1e-6)
