"""Layers that the networks are made of: Linear, BlockLinear, Conv2D, norms, activations.

Parameters are float32; a layer computes in the dtype of its input. Dreamer's choices of
initialisation, norm and activation are those of the paper, section "Network architecture".
"""

import math
import re
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from embodied.core.errors import UserError

from .convolution import convolve

f32 = jnp.float32


def symlog(x: Array) -> Array:
    """sign(x)·log(1 + |x|), the paper's squashing of unknown scales (equation 9)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """Inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def along(param: Float[Array, 'units'], x: Array) -> Array:
    """The parameter in the dtype of x and with as many axes, for the last axis of x."""
    return param.astype(x.dtype).reshape(*(1,) * (x.ndim - 1), -1)


def activation(name: str) -> Callable[[Array], Array]:
    """Activation by name: none, relu2, swiglu (halves the last axis), or any of jax.nn.

    Raises UserError for an unknown name.
    """
    own = {
        'none': lambda x: x,
        'relu2': lambda x: jnp.square(jax.nn.relu(x)),
        'swiglu': _swiglu,
    }
    fn = own.get(name) or getattr(jax.nn, name, None)
    if fn is None:
        raise UserError(
            f'Unknown activation {name!r} (a key named act), expected one of jax.nn or '
            f'{", ".join(own)}'
        )
    return fn


def units_before(act: str, units: int) -> int:
    """How many units an activation needs to give so many: swiglu twice as many."""
    return 2 * units if act == 'swiglu' else units


def _swiglu(x: Array) -> Array:
    gate, value = jnp.split(x, 2, -1)
    return jax.nn.silu(gate) * value


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan-in and fan-out of a kernel (..., in, out); leading axes multiply both."""
    lead = math.prod(shape[:-2])
    return lead * shape[-2], lead * shape[-1]


def init_kernel(
    key: PRNGKeyArray, shape: tuple[int, ...], winit: str, outscale: float
) -> Array:
    """Initial kernel (..., in, out): `DIST` or `DIST_FAN`, times outscale.

    DIST is trunc_normal (on [-2, 2], rescaled to unit variance), normal, uniform, normed
    (unit norm for each output), zeros; FAN is in (default), out or avg.
    """
    matched = re.fullmatch(
        r'(trunc_normal|normal|uniform|normed|zeros)(?:_(in|out|avg))?', winit
    )
    if not matched:
        raise UserError(
            f'Unknown initialiser {winit!r} (a key named winit), expected zeros, or one of '
            'trunc_normal, normal, uniform and normed with _in, _out or _avg'
        )
    dist, mode = matched.groups()
    if dist == 'zeros' or outscale == 0:
        return jnp.zeros(shape, f32)
    fan_in, fan_out = fans(shape)
    fan = {'in': fan_in, 'out': fan_out, 'avg': (fan_in + fan_out) / 2}[mode or 'in']
    if dist == 'trunc_normal':
        # 1.1368 is one over the standard deviation of a normal cut at two deviations.
        kernel = 1.1368 * jax.random.truncated_normal(key, -2, 2, shape) * math.sqrt(1 / fan)
    elif dist == 'normal':
        kernel = jax.random.normal(key, shape) * math.sqrt(1 / fan)
    elif dist == 'uniform':
        kernel = jax.random.uniform(key, shape, minval=-1, maxval=1) * math.sqrt(1 / fan)
    else:
        kernel = jax.random.normal(key, shape)
        kernel /= jnp.sqrt(jnp.square(kernel).sum(tuple(range(len(shape) - 1)), keepdims=True))
    return (outscale * kernel).astype(f32)


class Linear(eqx.Module):
    """x·W + b over the last axis; the result is reshaped to `out` where that is a tuple."""

    kernel: Float[Array, 'inp out']
    bias: Float[Array, 'out']
    out: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key, inp: int, out, *, winit='trunc_normal_in', outscale=1.0):
        self.out = (out,) if isinstance(out, int) else tuple(out)
        flat = math.prod(self.out)
        self.kernel = init_kernel(key, (inp, flat), winit, outscale)
        self.bias = jnp.zeros(flat, f32)

    def __call__(self, x: Float[Array, '*batch inp']) -> Array:
        return self.finish(self.product(x))

    def rows(self, start: int, size: int) -> 'Linear':
        """The inputs start, start+1, … alone.

        Products of all pieces plus `finish` equal the call on their concatenation. So what is
        known before a scan over time is computed outside of it, in one large product.
        """
        return eqx.tree_at(lambda x: x.kernel, self, self.kernel[start : start + size])

    def product(self, x: Float[Array, '*batch inp']) -> Float[Array, '*batch out']:
        """x·W, without bias."""
        return x @ self.kernel.astype(x.dtype)

    def finish(self, product: Array) -> Array:
        """Add the bias to a product and give it its shape."""
        y = product + along(self.bias, product)
        return y.reshape(*y.shape[:-1], *self.out)


class Product(eqx.Module):
    """x·W over the last axis."""

    kernel: Float[Array, 'inp out']

    def product(self, x: Float[Array, '*batch inp']) -> Float[Array, '*batch out']:
        """x·W."""
        return x @ self.kernel.astype(x.dtype)


class BlockLinear(eqx.Module):
    """Block-diagonal Linear: the last axis in g contiguous groups, one matrix each."""

    kernel: Float[Array, 'blocks inp out']
    bias: Float[Array, 'units']

    def __init__(self, key, inp: int, units: int, blocks: int, *, winit='trunc_normal_in'):
        if inp % blocks or units % blocks:
            raise UserError(
                f'{blocks} blocks do not divide {inp} inputs and {units} units; change '
                '--agent.dyn.rssm.blocks or deter, or --agent.dec.simple.bspace'
            )
        self.kernel = init_kernel(key, (blocks, inp // blocks, units // blocks), winit, 1.0)
        self.bias = jnp.zeros(units, f32)

    def __call__(self, x: Float[Array, '*batch inp']) -> Float[Array, '*batch units']:
        return self.finish(self.product(x))

    def rows(self, start: int, size: int) -> 'BlockLinear':
        """The inputs start, start+1, … of each group alone."""
        return eqx.tree_at(lambda x: x.kernel, self, self.kernel[:, start : start + size])

    def shared(self, start: int, size: int) -> Product:
        """Such inputs (*batch, size) for one that all groups have in common."""
        kernel = self.rows(start, size).kernel
        return Product(jnp.moveaxis(kernel, 0, 1).reshape(size, -1))

    def columns(self, parts: int) -> tuple['BlockLinear', ...]:
        """Layers that give the output in parts; each has a share of every group.

        As products of their own: to slice one large result costs more on a CPU than it saves.
        """
        blocks, inp, _ = self.kernel.shape
        kernel = self.kernel.reshape(blocks, inp, parts, -1)
        bias = self.bias.reshape(blocks, parts, -1)
        return tuple(
            eqx.tree_at(
                lambda x: (x.kernel, x.bias), self, (kernel[:, :, i], bias[:, i].reshape(-1))
            )
            for i in range(parts)
        )

    def product(self, x: Float[Array, '*batch inp']) -> Float[Array, '*batch units']:
        """The same without bias."""
        kernel = self.kernel.astype(x.dtype)
        groups = x.reshape(-1, *kernel.shape[:2]).swapaxes(0, 1)
        # In this order of operands and axes: what einsum makes of it is slow on CPUs.
        y = jax.lax.dot_general(groups, kernel, (((2,), (1,)), ((0,), (0,))))
        return y.swapaxes(0, 1).reshape(*x.shape[:-1], -1)

    def finish(self, product: Float[Array, '*batch units']) -> Float[Array, '*batch units']:
        """Add the bias to the sum of all products."""
        return product + along(self.bias, product)


class Conv2D(eqx.Module):
    """Convolution NHWC with SAME padding, or its transposed form that upsamples by stride.

    The transposed form repeats every pixel `stride` times along both axes, keeps only the
    positions p with (p - 1) mod stride = 0 on both axes, then applies a plain convolution.
    """

    kernel: Float[Array, 'k k inp depth']
    bias: Float[Array, 'depth']
    stride: int = eqx.field(static=True)
    transposed: bool = eqx.field(static=True)

    def __init__(
        self, key, inp: int, depth: int, k: int, stride=1, *, transposed=False,
        winit='trunc_normal_in', outscale=1.0,
    ):  # fmt: skip
        self.kernel = init_kernel(key, (k, k, inp, depth), winit, outscale)
        self.bias = jnp.zeros(depth, f32)
        self.stride, self.transposed = stride, transposed

    def __call__(self, x: Float[Array, '*batch h w inp']) -> Float[Array, '*batch h2 w2 depth']:
        batch = x.shape[:-3]
        x = x.reshape(-1, *x.shape[-3:])
        kernel, stride = self.kernel.astype(x.dtype), self.stride
        if self.transposed:
            x, stride = self._spread(x), 1
        y = convolve(x, kernel, stride)
        y += along(self.bias, y)
        return y.reshape(*batch, *y.shape[-3:])

    def after_upsampling(self, x: Float[Array, '*batch h w inp']) -> Array:
        """The same as the convolution of `upsample(x)`, (*batch, 2h, 2w, depth).

        Each of the four pixels that come from one sees every input of its neighbourhood
        several times. So the taps that meet the same input are summed beforehand, and one
        smaller convolution gives all four pixels: for 5×5 taps 9 products instead of 25.
        """
        batch, (h, w) = x.shape[:-3], x.shape[-3:-1]
        depth = self.bias.shape[0]
        phases, low, high = _phases(self.kernel.shape[0])
        kernel = jnp.einsum('apu,bqv,uvio->pqiabo', phases, phases, self.kernel)
        kernel = kernel.reshape(*kernel.shape[:3], -1).astype(x.dtype)
        y = jax.lax.conv_general_dilated(
            x.reshape(-1, *x.shape[-3:]), kernel, (1, 1), ((low, high), (low, high)),
            dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
        )  # fmt: skip
        y = y.reshape(-1, h, w, 2, 2, depth).swapaxes(2, 3)
        y = y.reshape(*batch, 2 * h, 2 * w, depth)
        return y + along(self.bias, y)

    def _spread(self, x: Array) -> Array:
        x = upsample(x, self.stride)
        rows, cols = ((jnp.arange(n) - 1) % self.stride == 0 for n in x.shape[1:3])
        return jnp.where((rows[:, None] & cols[None, :])[None, :, :, None], x, 0)


def _phases(taps: int) -> tuple[np.ndarray, int, int]:
    """Which of the inputs before a 2× upsampling each tap of a SAME convolution meets.

    Returns 0 or 1 for (phase of the output, input, tap), and how many inputs lie before and
    after the output's own.
    """
    padding = (taps - 1) // 2
    meets = np.array(
        [[(phase + tap - padding) // 2 for tap in range(taps)] for phase in (0, 1)]
    )
    low, high = -meets.min(), meets.max()
    inputs = np.arange(-low, high + 1)
    return np.float32(meets[:, None, :] == inputs[None, :, None]), int(low), int(high)


def upsample(x: Float[Array, '*batch h w c'], factor: int = 2) -> Array:
    """Nearest-neighbour upsampling along height and width."""
    return x.repeat(factor, -3).repeat(factor, -2)


def max_pool(x: Float[Array, '*batch h w c']) -> Float[Array, '*batch h2 w2 c']:
    """Largest of every 2×2 block of pixels."""
    *batch, h, w, c = x.shape
    return x.reshape(*batch, h // 2, 2, w // 2, 2, c).max((-4, -2))


class Norm(eqx.Module):
    """Normalisation over the last axis in float32: `rms`, `layer` or `none`.

    A suffix sets epsilon: `rms1em8` means 1e-8; the default is 1e-4.
    """

    scale: Float[Array, 'units'] | None
    shift: Float[Array, 'units'] | None
    impl: str = eqx.field(static=True)
    eps: float = eqx.field(static=True)

    def __init__(self, impl: str, units: int):
        matched = re.fullmatch(r'(rms|layer|none)(?:(\d+)em(\d+))?', impl)
        if not matched:
            raise UserError(
                f'Unknown norm {impl!r} (a key named norm), expected rms, layer or none'
            )
        self.impl, mantissa, exponent = matched.groups()
        self.eps = float(f'{mantissa}e-{exponent}') if mantissa else 1e-4
        self.scale = None if self.impl == 'none' else jnp.ones(units, f32)
        self.shift = jnp.zeros(units, f32) if self.impl == 'layer' else None

    def __call__(self, x: Float[Array, '*batch units']) -> Float[Array, '*batch units']:
        if self.impl == 'none':
            return x
        y = x.astype(f32)
        if self.impl == 'layer':
            y -= y.mean(-1, keepdims=True)
        y *= jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + self.eps)
        y *= along(self.scale, y)
        if self.shift is not None:
            y += along(self.shift, y)
        return y.astype(x.dtype)


class Layer(eqx.Module):
    """A linear map or convolution, then a norm, then an activation."""

    linear: Linear | BlockLinear | Conv2D
    norm: Norm
    act: str = eqx.field(static=True)

    def __init__(self, linear, norm: str, act: str):
        activation(act)  # an unknown name shows here, not in the first step
        self.linear = linear
        self.norm = Norm(norm, linear.bias.shape[0])
        self.act = act

    def __call__(self, x: Array) -> Array:
        return self.finish(self.linear(x))

    def finish(self, x: Array) -> Array:
        """Norm and activation alone, for a product computed elsewhere."""
        return activation(self.act)(self.norm(x))


def dense(
    key, inp: int, units: int, *, norm='rms', act='silu', winit='trunc_normal_in'
) -> Layer:
    """Linear, norm, activation."""
    return Layer(Linear(key, inp, units_before(act, units), winit=winit), norm, act)


class MLP(eqx.Module):
    """`layers` times Linear, norm, activation."""

    layers: tuple[Layer, ...]

    def __init__(self, key, inp: int, layers: int, units: int, **kwargs):
        keys = jax.random.split(key, max(1, layers))
        sizes = [inp] + [units] * layers
        self.layers = tuple(dense(keys[i], sizes[i], units, **kwargs) for i in range(layers))

    def __call__(self, x: Float[Array, '*batch inp']) -> Float[Array, '*batch units']:
        for layer in self.layers:
            x = layer(x)
        return x
