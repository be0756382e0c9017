"""Convolutions (n, h, w, in) with (k, k, in, out), SAME padding, by what is fastest and exact.

XLA's own is, but for the images that an encoder begins with: with few channels a CPU spends its
time on gathering numbers. There, BLOCK neighbouring outputs of a row come from one product of
all inputs that any of them sees with a kernel that is spread out: (k · (k + BLOCK - 1) · in)
times (BLOCK · out), most of it zeros. That is several times the arithmetic, at several times
the speed (docs/performance-notes.md).
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

NARROW = 4  # channels, up to which inputs count as few
BLOCK = 4
IMAGES = 8  # at once, so that the gathered inputs stay in the cache


def convolve(
    x: Float[Array, 'n h w inp'], kernel: Float[Array, 'k k inp out'], stride: int = 1
) -> Float[Array, 'n h2 w2 out']:
    """The convolution, in the dtype of x."""
    narrow = x.shape[-1] <= NARROW and x.shape[-2] % BLOCK == 0 and len(kernel) % 2
    return _narrow(x, kernel) if narrow and stride == 1 else _plain(x, kernel, stride)


def _plain(x: Array, kernel: Array, stride: int = 1) -> Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
    )


@jax.custom_vjp
def _narrow(x: Array, kernel: Array) -> Array:
    return jax.lax.platform_dependent(x, kernel, cpu=_blocked, default=_plain)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _narrow(x, kernel), (x, kernel)


def _backward(inputs: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
    return jax.vjp(_plain, *inputs)[1](grad)


_narrow.defvjp(_forward, _backward)


def _blocked(x: Array, kernel: Array) -> Array:
    taps, _, _, depth = kernel.shape
    spread = jnp.stack(
        [jnp.pad(kernel, ((0, 0), (i, BLOCK - 1 - i), (0, 0), (0, 0))) for i in range(BLOCK)],
        3,
    )  # (taps, taps + BLOCK - 1, inp, BLOCK, depth)
    spread = spread.reshape(-1, BLOCK * depth)

    def image(x: Array) -> Array:
        product = _seen(x, taps) @ spread
        return product.reshape(*x.shape[:2], depth)

    return jax.lax.map(image, x, batch_size=min(IMAGES, len(x)))


def _seen(x: Float[Array, 'h w inp'], taps: int) -> Float[Array, 'blocks seen']:
    """The inputs that each block of outputs sees."""
    height, width, channels = x.shape
    before = taps // 2
    padded = jnp.pad(x, ((before, before), (before, before), (0, 0)))
    seen = taps + BLOCK - 1
    blocks = [
        jnp.concatenate(
            [
                padded[row : row + height, first : first + seen].reshape(height, -1)
                for row in range(taps)
            ],
            -1,
        )
        for first in range(0, width, BLOCK)
    ]
    return jnp.stack(blocks, 1).reshape(-1, math.prod((taps, seen, channels)))
