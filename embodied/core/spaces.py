"""Guards around `elements.Space`, whose own comparisons and samples cannot be relied on.

The rules here: dtype and shape must match exactly. Integers lie in [low, high), except that a
`high` at the end of the dtype counts as no bound, since nothing greater can be written down
(an image of uint8 has the value 255). Floats lie in [low, high]; NaN and +inf are refused, and
-inf (a value that is not available) passes only where `low` is -inf.
"""

from typing import Any

import numpy as np

from .errors import UserError


def is_text(space: Any) -> bool:
    """Whether values of the space are strings, which have no bounds and no fixed dtype."""
    return space.dtype.kind in 'US'


def bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest allowed values, both inclusive, in the space's shape.

    They have the space's dtype: integer bounds are cut to its range, float bounds rounded.
    """
    low, high = np.asarray(space.low), np.asarray(space.high)
    if space.dtype.kind not in 'iu':
        return low.astype(space.dtype), high.astype(space.dtype)
    info = np.iinfo(space.dtype)
    last = np.where(high >= info.max, info.max, high - 1).astype(space.dtype)
    return np.maximum(low, info.min).astype(space.dtype), last


def equal(a: Any, b: Any) -> bool:
    """Whether two spaces have the same dtype, shape and bounds."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if is_text(a):
        return True
    return all(np.array_equal(x, y) for x, y in zip(bounds(a), bounds(b), strict=True))


class Guard:
    """One space, made ready to check many values against it; without bounds if not bounded."""

    def __init__(self, space: Any, bounded: bool = True):
        self.space = space
        self._text = is_text(space)
        if not self._text:
            low, high = bounds(space)
            full = space.dtype.kind == 'b'
            if space.dtype.kind in 'iu':
                info = np.iinfo(space.dtype)
                full = bool((low == info.min).all() and (high == info.max).all())
            self._bounds = None if full or not bounded else (low, high)

    def contains(self, value: Any) -> bool:
        """Whether a value has the dtype and shape of the space and lies within its bounds."""
        value, space = np.asarray(value), self.space
        if self._text:
            return value.dtype.kind == space.dtype.kind and value.shape == space.shape
        if value.dtype != space.dtype or value.shape != space.shape:
            return False
        if self._bounds is None:
            return True
        low, high = self._bounds
        inside = (value >= low) & (value <= high)  # NaN compares false
        if space.dtype.kind == 'f':
            inside &= value < np.inf
        return bool(inside.all())

    def check(self, name: str, value: Any) -> None:
        """Raise a UserError that says what was expected and what was seen, if it is outside."""
        if self.contains(value):
            return
        value = np.asarray(value)
        seen = f'dtype {value.dtype}, shape {value.shape}'
        if value.dtype.kind in 'biuf' and value.size:
            seen += f', least {value.min()}, greatest {value.max()}'
        expected = describe(self.space)
        raise UserError(f'{name} is outside of its space: expected {expected}, got {seen}.')


def contains(space: Any, value: Any) -> bool:
    """Whether a value is in a space; a Guard does the same faster for many values."""
    return Guard(space).contains(value)


def check(name: str, space: Any, value: Any) -> None:
    """Raise a UserError if a value is not in a space; see Guard."""
    Guard(space).check(name, value)


def describe(space: Any) -> str:
    """Return dtype, shape and the inclusive bounds of a space in words."""
    if is_text(space):
        return f'text, shape {space.shape}'
    low, high = bounds(space)
    return f'dtype {space.dtype}, shape {space.shape}, from {low.min()} to {high.max()}'


def sample(space: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw one value: uniform within the bounds, normal where a float has no bounds.

    Where only one bound is finite, the draw is that bound moved inwards by |normal|.
    """
    if space.dtype.kind == 'b':
        return rng.integers(0, 2, space.shape).astype(bool)
    low, high = bounds(space)
    if space.dtype.kind in 'iu':
        drawn = rng.integers(low, high, space.shape, space.dtype, endpoint=True)
        return np.asarray(drawn, space.dtype)
    uniform, normal = rng.random(space.shape), rng.standard_normal(space.shape)
    floor, ceil = np.isfinite(low), np.isfinite(high)
    least, most = np.where(floor, low, 0.0), np.where(ceil, high, 0.0)
    between = least * (1 - uniform) + most * uniform  # cannot overflow, unlike most - least
    onesided = np.where(floor, least + np.abs(normal), most - np.abs(normal))
    value = np.where(floor & ceil, between, np.where(floor | ceil, onesided, normal))
    return np.clip(value.astype(space.dtype), low, high)
