"""Encoder: observations to tokens (paper, section "World model learning", extended data).

Vectors pass symlog and an MLP, images a stack of convolutions; a token is both, joined.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from embodied import UserError
from embodied.jax import concat
from embodied.jax.nets import MLP, Conv2D, Layer, max_pool, symlog, units_before

from . import pixels

FLAGS = ('is_first', 'is_last', 'is_terminal', 'reward')
MAX_ONEHOT = 2**16


def split_spaces(obs_space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Vector and image keys of an observation, each in sorted order.

    Vectors have up to two axes; images have three (height, width, channels) and are uint8.
    Raises UserError for any other key, or if no key is left to encode.
    """
    spaces = {k: obs_space[k] for k in sorted(obs_space) if k not in FLAGS}
    if not spaces:
        raise UserError('The environment has no observation to learn from beside its reward')
    vectors = {k: s for k, s in spaces.items() if len(s.shape) <= 2}
    images = {k: s for k, s in spaces.items() if len(s.shape) == 3 and s.dtype == 'uint8'}
    for key in set(spaces) - set(vectors) - set(images):
        raise UserError(
            f'Observation {key!r} is {spaces[key]}; expected at most two axes, or an image '
            'of type uint8 with axes height, width, channels'
        )
    for key, space in vectors.items():
        width = concat.width({key: space})
        if width > MAX_ONEHOT and space.discrete:
            raise UserError(
                f'Observation {key!r} is {space}: {concat.classes(space)} classes are too many '
                f'for one-hot vectors, which would have {width} entries, more than '
                f'{MAX_ONEHOT}; declare it as float32 in the environment'
            )
    sizes = {s.shape[:2] for s in images.values()}
    if len(sizes) > 1:
        raise UserError(f'Images of one observation must share one size, found {sorted(sizes)}')
    return vectors, images


class Encoder(eqx.Module):
    """Tokens of observations; `width` is their size."""

    mlp: MLP | None
    cnn: tuple[Layer, ...]
    vectors: dict[str, Any] = eqx.field(static=True)
    images: dict[str, Any] = eqx.field(static=True)
    width: int = eqx.field(static=True)
    symlog: bool = eqx.field(static=True)
    outer: bool = eqx.field(static=True)
    strided: bool = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, obs_space: Mapping[str, Any], dtype, *, depth: int, mults,
        layers: int, units: int, act: str, norm: str, winit: str, symlog: bool, outer: bool,
        kernel: int, strided: bool,
    ):  # fmt: skip
        self.vectors, self.images = split_spaces(obs_space)
        self.symlog, self.outer, self.strided, self.dtype = symlog, outer, strided, dtype
        mlp_key, *keys = jax.random.split(key, 1 + len(mults))
        self.mlp, self.cnn, self.width = None, (), 0
        if self.vectors:
            inp = concat.width(self.vectors)
            self.mlp = MLP(mlp_key, inp, layers, units, act=act, norm=norm, winit=winit)
            self.width += units if layers else inp
        if self.images:
            channels = sum(s.shape[-1] for s in self.images.values())
            depths = [channels, *(depth * mult for mult in mults)]
            self.cnn = tuple(
                Layer(
                    Conv2D(keys[i], depths[i], units_before(act, depths[i + 1]), kernel,
                           self._stride(i), winit=winit),
                    norm, act,
                )
                for i in range(len(mults))
            )  # fmt: skip
            height, wide = next(iter(self.images.values())).shape[:2]
            shrink = 2 ** (len(mults) - bool(outer))
            self.width += math.prod((height // shrink, wide // shrink, depths[-1]))

    def __call__(self, obs: Mapping[str, Array]) -> Float[Array, '*batch width']:
        """Tokens of a batch of observations with any leading axes."""
        parts = []
        if self.vectors:
            squash = symlog if self.symlog else (lambda x: x)
            parts.append(self.mlp(concat.concat(self.vectors, obs, self.dtype, squash)))
        if self.images:
            x = jnp.concatenate([obs[key] for key in self.images], -1)
            x = pixels.scale(self.images, x, self.dtype) - 0.5
            for i, layer in enumerate(self.cnn):
                x = layer.linear(x)
                if not self.strided and not (self.outer and i == 0):
                    x = max_pool(x)
                x = layer.finish(x)
            parts.append(x.reshape(*x.shape[:-3], -1))
        return jnp.concatenate(parts, -1)

    def _stride(self, stage: int) -> int:
        return 2 if self.strided and not (self.outer and stage == 0) else 1
