"""Decoder: latent states to predictions of the observation (paper, "World model learning").

Vectors get an MLP with an output for each key, images a stack of upsampling convolutions
whose first map comes from a block-diagonal projection of deter plus an MLP on stoch.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from embodied.jax import concat
from embodied.jax.distributions import MSE, Distribution
from embodied.jax.heads import Output
from embodied.jax.nets import (
    MLP,
    BlockLinear,
    Conv2D,
    Layer,
    Linear,
    Norm,
    activation,
    dense,
    units_before,
)

from . import pixels
from .encoder import split_spaces

f32 = jnp.float32


class Decoder(eqx.Module):
    """Predictions for every key of the observation."""

    mlp: MLP | None
    vec: dict[str, Output]
    space: 'BlockGrid | DenseGrid | None'
    conv: tuple[Layer, ...]
    imgout: Conv2D | None
    vectors: dict[str, Any] = eqx.field(static=True)
    images: dict[str, Any] = eqx.field(static=True)
    outer: bool = eqx.field(static=True)
    strided: bool = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, obs_space: Mapping[str, Any], state_sizes, *, depth: int,
        mults, layers: int, units: int, act: str, norm: str, winit: str, outscale: float,
        outer: bool, kernel: int, strided: bool, bspace: int, symlog: bool = True,
    ):  # fmt: skip
        self.vectors, self.images = split_spaces(obs_space)
        self.outer, self.strided = outer, strided
        opts = dict(act=act, norm=norm, winit=winit)
        self.mlp, self.vec, self.space, self.conv, self.imgout = None, {}, None, (), None
        vec_key, space_key, img_key = jax.random.split(key, 3)
        deter, stoch, classes = state_sizes
        if self.vectors:
            inp = deter + stoch * classes
            mlp_key, *keys = jax.random.split(vec_key, 1 + len(self.vectors))
            self.mlp = MLP(mlp_key, inp, layers, units, **opts)
            inp = units if layers else inp
            self.vec = {
                name: _vector_output(k, inp, space, symlog, outscale, winit)
                for k, (name, space) in zip(keys, self.vectors.items(), strict=True)
            }
        if self.images:
            depths = [depth * mult for mult in mults]
            height, width = next(iter(self.images.values())).shape[:2]
            shrink = 2 ** (len(mults) - bool(outer))
            shape = (height // shrink, width // shrink, depths[-1])
            if bspace:
                self.space = BlockGrid(
                    space_key, shape, deter, stoch * classes, bspace, units, **opts
                )
            else:
                self.space = DenseGrid(space_key, shape, deter + stoch * classes, **opts)
            keys = jax.random.split(img_key, len(depths))
            up = dict(stride=2, transposed=True) if strided else {}
            self.conv = tuple(
                Layer(
                    Conv2D(keys[i], depths[i + 1], units_before(act, depths[i]), kernel,
                           winit=winit, **up),
                    norm, act,
                )
                for i in range(len(depths) - 1)
            )  # fmt: skip
            channels = sum(s.shape[-1] for s in self.images.values())
            up = {} if outer else up
            self.imgout = Conv2D(
                keys[-1], depths[0], channels, kernel, winit=winit, outscale=outscale, **up
            )

    def __call__(self, state: Mapping[str, Array]) -> dict[str, Distribution]:
        """Distribution for each key of the observation, for states with any leading axes."""
        deter, stoch = state['deter'], state['stoch']
        stoch = stoch.reshape(*deter.shape[:-1], -1)
        out = {}
        if self.vectors:
            x = self.mlp(jnp.concatenate([stoch, deter], -1))
            out |= {key: output(x) for key, output in self.vec.items()}
        if self.images:
            out |= self._images(self.space(deter, stoch))
        return out

    def loss(self, state: Mapping[str, Array], obs: Mapping[str, Array]) -> dict[str, Array]:
        """Reconstruction error of each key, summed over the entries of one observation."""
        dists = self(state)
        losses = {}
        for key, dist in dists.items():
            target = obs[key]
            if key in self.images:
                target = pixels.scale({key: self.images[key]}, target, f32)
            elif self.vectors[key].discrete:
                target = target.astype(jnp.int32) - concat.offset(self.vectors[key])
            losses[key] = dist.loss(target)
        return losses

    def _enlarge(self, conv: Conv2D, x: Array) -> Array:
        return conv(x) if self.strided else conv.after_upsampling(x)

    def _images(self, x: Array) -> dict[str, Distribution]:
        for layer in reversed(self.conv):
            x = layer.finish(self._enlarge(layer.linear, x))
        x = self.imgout(x) if self.outer else self._enlarge(self.imgout, x)
        x = jax.nn.sigmoid(x.astype(f32))
        depths = [space.shape[-1] for space in self.images.values()]
        parts = jnp.split(x, [sum(depths[:i]) for i in range(1, len(depths))], -1)
        return {key: MSE(part, event=3) for key, part in zip(self.images, parts, strict=True)}


class BlockGrid(eqx.Module):
    """The smallest map (h, w, c) from deter and stoch, with channels in groups.

    Each group of channels comes from one group of deter, plus a projection of stoch.
    """

    sp0: BlockLinear
    sp1: Layer
    sp2: Linear
    spnorm: Norm
    shape: tuple[int, int, int] = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    act: str = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, shape: tuple[int, int, int], deter: int, stoch: int,
        blocks: int, units: int, *, norm: str, act: str, winit: str,
    ):  # fmt: skip
        keys = jax.random.split(key, 3)
        shape = (*shape[:2], units_before(act, shape[2]))
        self.shape, self.blocks, self.act = shape, blocks, act
        self.sp0 = BlockLinear(keys[0], deter, math.prod(shape), blocks, winit=winit)
        self.sp1 = dense(keys[1], stoch, 2 * units, norm=norm, act=act, winit=winit)
        self.sp2 = Linear(keys[2], 2 * units, shape, winit=winit)
        self.spnorm = Norm(norm, shape[-1])

    def __call__(self, deter: Array, stoch: Array) -> Float[Array, '*batch h w c']:
        (height, width, depth), g = self.shape, self.blocks
        x = self.sp0(deter)
        x = x.reshape(*x.shape[:-1], g, height, width, depth // g)
        x = jnp.moveaxis(x, -4, -2)
        x = x.reshape(*x.shape[:-4], *self.shape)
        x += self.sp2(self.sp1(stoch))
        return activation(self.act)(self.spnorm(x))


class DenseGrid(eqx.Module):
    """The smallest map (h, w, c) from deter and stoch by one dense layer."""

    dense: Linear
    densenorm: Norm
    act: str = eqx.field(static=True)

    def __init__(self, key, shape, inp: int, *, norm: str, act: str, winit: str):
        shape = (*shape[:2], units_before(act, shape[2]))
        self.dense = Linear(key, inp, shape, winit=winit)
        self.densenorm, self.act = Norm(norm, shape[-1]), act

    def __call__(self, deter: Array, stoch: Array) -> Float[Array, '*batch h w c']:
        x = self.dense(jnp.concatenate([stoch, deter], -1))
        return activation(self.act)(self.densenorm(x))


def _vector_output(key, inp, space, symlog, outscale, winit) -> Output:
    opts = dict(outscale=outscale, winit=winit)
    if space.discrete:
        return Output(
            key, inp, space.shape, 'categorical', classes=concat.classes(space), **opts
        )
    return Output(key, inp, space.shape, 'symlog_mse' if symlog else 'mse', **opts)
