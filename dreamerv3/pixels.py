"""Pixels as the model sees them: from 0 to 1 within the range that their space declares.

That range is 0 to 255 for pictures. A mask of 0 and 1 keeps both ends, which 255 as the end of
every range would hide from the model.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from embodied import spaces as core
from embodied.jax.nets import along

WHITE = 255


def scale(
    spaces: Mapping[str, Any], image: UInt8[Array, '*batch h w c'], dtype: Any
) -> Float[Array, '*batch h w c']:
    """Pixels from 0 to 1, of images of these spaces with their channels joined in order."""
    low, span = _range(spaces)
    x = image.astype(dtype)
    if np.any(low != 0):
        x = x - _spread(low, x)
    return x / _spread(span, x)


def shown(space: Any, image: UInt8[Array, '*batch h w c']) -> UInt8[Array, '*batch h w c']:
    """The image for people to look at, from black to white within the range of its space."""
    low, span = _range({'': space})
    if np.all(low == 0) and np.all(span == WHITE):
        return image
    x = scale({'': space}, image, jnp.float32)
    return jnp.clip(jnp.round(WHITE * x), 0, WHITE).astype(jnp.uint8)


def _range(spaces: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Least value and width of the range of each channel; () where all channels share them."""
    found = [core.bounds(space) for space in spaces.values()]
    low = np.concatenate([low.min((0, 1)) for low, _ in found]).astype(np.float32)
    high = np.concatenate([high.max((0, 1)) for _, high in found]).astype(np.float32)
    span = np.maximum(high - low, 1)  # of a constant image, nothing is there to be divided
    if (low == low[0]).all() and (span == span[0]).all():
        return np.asarray(low[0]), np.asarray(span[0])
    return low, span


def _spread(values: np.ndarray, x: Array) -> Any:
    """Numbers of the channels, to be combined with x (…, channels)."""
    return along(jnp.asarray(values, x.dtype), x) if values.ndim else float(values)
