"""Vectors of mixed spaces as one array: discrete entries one-hot, continuous ones raw."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

f32 = jnp.float32


def offset(space) -> int:
    """Value of a discrete space that is class 0.

    A least value of -1 means "not available" and has no class; one below that shifts.
    """
    low = int(np.min(space.low)) if space.dtype != bool else 0
    return low if low < -1 else 0


def classes(space) -> int:
    """Number of classes of a discrete space, one number for the whole array."""
    return 2 if space.dtype == bool else int(np.max(space.high)) - offset(space)


def width(spaces: Mapping[str, Any]) -> int:
    """Number of entries that `concat` makes of these spaces."""
    return sum(
        math.prod(space.shape) * (classes(space) if space.discrete else 1)
        for space in spaces.values()
    )


def variables(spaces: Mapping[str, Any]) -> int:
    """Number of variables in these spaces: for each one number says which value it takes."""
    return sum(math.prod(space.shape) for space in spaces.values())


def cut(spaces: Mapping[str, Any], numbers: Array) -> dict[str, Array]:
    """Numbers (*batch, variables), one for each variable, by key and in its shape."""
    found, start = {}, 0
    for key in sorted(spaces):
        shape = spaces[key].shape
        stop = start + math.prod(shape)
        found[key] = numbers[..., start:stop].reshape(*numbers.shape[:-1], *shape)
        start = stop
    return found


def concat(
    spaces: Mapping[str, Any],
    values: Mapping[str, Array],
    dtype: Any,
    squash: Callable[[Array], Array] = lambda x: x,
) -> Array:
    """Flattened keys in sorted order, (*batch, width), in `dtype`.

    Discrete values become one-hot, and -1 gives zeros where the space admits it; continuous
    ones pass `squash`, and a key with an entry of -inf ("not available") gives zeros.
    """
    parts = []
    for key in sorted(spaces):
        space, value = spaces[key], values[key]
        batch = value.shape[: value.ndim - len(space.shape)]
        if space.discrete:
            index = value.astype(jnp.int32) - offset(space)
            part = jax.nn.one_hot(index, classes(space), dtype=dtype)
        else:
            value = value.astype(f32)
            event = tuple(range(len(batch), value.ndim))
            missing = (value == -jnp.inf).any(event, keepdims=True)
            part = jnp.where(missing, 0, squash(value)).astype(dtype)
        parts.append(part.reshape(*batch, -1))
    return jnp.concatenate(parts, -1)
