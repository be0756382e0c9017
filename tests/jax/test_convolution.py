"""Convolutions of few channels: the same numbers and gradients as XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import convolution

KEY = jax.random.key(0)


def inputs(images=3, height=6, width=8, channels=3, taps=5, depth=4, dtype=jnp.float32):
    keys = jax.random.split(KEY)
    x = jax.random.normal(keys[0], (images, height, width, channels), dtype)
    return x, jax.random.normal(keys[1], (taps, taps, channels, depth), dtype)


def by_hand(x, kernel):
    """A loop over outputs and taps."""
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    (n, h, w, _), taps = x.shape, len(kernel)
    half = taps // 2
    out = np.zeros((n, h, w, kernel.shape[-1]))
    for row in range(h):
        for col in range(w):
            for i in range(taps):
                for j in range(taps):
                    y, z = row + i - half, col + j - half
                    if 0 <= y < h and 0 <= z < w:
                        out[:, row, col] += x[:, y, z] @ kernel[i, j]
    return out


@pytest.mark.parametrize('taps', [1, 3, 5, 7])
@pytest.mark.parametrize(('images', 'channels'), [(1, 1), (8, 3), (11, 4), (16, 2)])
def test_blocks_give_what_a_loop_gives(taps, images, channels):
    x, kernel = inputs(images, channels=channels, taps=taps)
    found = convolution.convolve(x, kernel)
    np.testing.assert_allclose(found, by_hand(x, kernel), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        convolution._blocked(x, kernel), convolution._plain(x, kernel), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize('change', [{'channels': 5}, {'width': 6}, {'taps': 4}])
def test_what_blocks_do_not_fit_is_left_to_xla(change):
    x, kernel = inputs(**change)
    np.testing.assert_array_equal(
        convolution.convolve(x, kernel), convolution._plain(x, kernel)
    )


def test_gradients_are_those_of_xla():
    x, kernel = inputs(11)

    def loss(fn):
        return lambda *args: (jnp.sin(fn(*args))).sum()

    ours = jax.grad(loss(convolution.convolve), (0, 1))(x, kernel)
    plain = jax.grad(loss(convolution._plain), (0, 1))(x, kernel)
    for found, expected in zip(ours, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_strides_and_bfloat16():
    x, kernel = inputs(dtype=jnp.bfloat16)
    found = convolution.convolve(x, kernel)
    assert found.dtype == jnp.bfloat16
    wide = convolution._plain(x.astype(jnp.float32), kernel.astype(jnp.float32))
    np.testing.assert_allclose(found.astype(jnp.float32), wide, rtol=0.05, atol=0.2)
    assert convolution.convolve(x, kernel, 2).shape == (3, 3, 4, 4)
