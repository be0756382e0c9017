"""Guards around `elements.Space`, whose own comparisons and samples cannot be relied on.

The rules here: dtype and shape must match exactly. Integers lie in [low, high), except that a
`high` at the end of the dtype counts as no bound, since nothing greater can be written down
(an image of uint8 has the value 255). Floats lie in [low, high]; NaN and +inf are refused, and
-inf (a value that is not available) passes only where `low` is -inf.

Nothing is computed from the bounds of observed floats, so that a finite value beyond them does
no harm: where a check is not `strict`, it is said and not refused.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import UserError

FLAGS = ('reward', 'is_first', 'is_last', 'is_terminal')  # of every observation
LOG = 'log/'  # begins the names of observations that are logged alone
# What the replay (stepid, consec) and parallel runs (envid, is_eval) add to a step.
RESERVED = ('stepid', 'consec', 'envid', 'is_eval')


def is_text(space: Any) -> bool:
    """Return whether values of the space are strings: they have no bounds, no fixed dtype.

    >>> is_text(elements.Space(str)), is_text(elements.Space(np.float32))
    (True, False)
    """
    return space.dtype.kind in 'US'


def bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest allowed values, both inclusive, in the space's shape.

    They have the space's dtype: integer bounds are cut to its range, float bounds rounded.

    >>> low, high = bounds(elements.Space(np.int32, (2,), 0, 5))
    >>> low.tolist(), high.tolist()
    ([0, 0], [4, 4])
    """
    low, high = np.asarray(space.low), np.asarray(space.high)
    if space.dtype.kind not in 'iu':
        return low.astype(space.dtype), high.astype(space.dtype)
    info = np.iinfo(space.dtype)
    last = np.where(high >= info.max, info.max, high - 1).astype(space.dtype)
    return np.maximum(low, info.min).astype(space.dtype), last


def equal(a: Any, b: Any) -> bool:
    """Return whether two spaces have the same dtype, shape and bounds.

    >>> equal(elements.Space(np.uint8), elements.Space(np.uint8, (), 0, 255))
    True
    >>> equal(elements.Space(np.uint8), elements.Space(np.uint8, (), 0, 100))
    False
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if is_text(a):
        return True
    return all(np.array_equal(x, y) for x, y in zip(bounds(a), bounds(b), strict=True))


class Guard:
    """Hold one space, made ready to check many values against it.

    >>> guard = Guard(elements.Space(np.float32, (), -1, 1))
    >>> guard.contains(np.float32(0.5)), guard.contains(np.float64(0.5))
    (True, False)
    >>> guard.check('speed', np.float32(2), strict=False)
    'speed is outside of its space: it is 2.0, expected from -1.0 to 1.0'
    """

    def __init__(self, space: Any):
        self.space = space
        self._text = is_text(space)
        self._bounds = None if self._text or _full(space) else bounds(space)

    def contains(self, value: Any) -> bool:
        """Whether a value has the dtype and shape of the space and lies within its bounds."""
        value = np.asarray(value)
        if not self.fits(value):
            return False
        if self._bounds is None:
            return True
        low, high = self._bounds
        inside = (value >= low) & (value <= high)  # NaN compares false
        if self.space.dtype.kind == 'f':
            inside &= value < np.inf
        return bool(inside.all())

    def fits(self, value: Any) -> bool:
        """Whether a value has the dtype and shape of the space, whatever its entries are."""
        value, space = np.asarray(value), self.space
        if value.shape != space.shape:
            return False
        return (
            value.dtype.kind == space.dtype.kind if self._text else value.dtype == space.dtype
        )

    def check(self, name: str, value: Any, strict: bool = True) -> str:
        """Raise a UserError that says what was expected and what was seen, if it is outside.

        Without strict, floats beyond their bounds are no error: the sentence about them is
        returned, and an empty one for a value that is inside.
        """
        if self.contains(value):
            return ''
        value = np.asarray(value)
        self.check_form(name, value)
        assert self._bounds is not None
        low, high = self._bounds
        if self.space.dtype.kind == 'f':
            lacking = (value == -np.inf) & (low == -np.inf)
            where = _first(~(np.isfinite(value) | lacking))
            if where is not None:
                raise UserError(f'{_outside(name, value, where)}, which is not finite.')
        where = _first((value < low) | (value > high)) or ()
        bound = f'expected from {low[where]!s} to {high[where]!s}'
        text = f'{_outside(name, value, where)}, {bound}'
        if strict or self.space.dtype.kind != 'f':
            raise UserError(f'{text}.')
        return text

    def check_form(self, name: str, value: Any) -> None:
        """Raise a UserError if dtype or shape differ from those of the space."""
        value = np.asarray(value)
        if self.fits(value):
            return
        seen = f'dtype {value.dtype}, shape {value.shape}'
        if value.dtype.kind in 'biuf' and value.size:
            seen += f', least {value.min()}, greatest {value.max()}'
        expected = describe(self.space)
        raise UserError(f'{name} is outside of its space: expected {expected}, got {seen}.')


def _full(space: Any) -> bool:
    """Whether every value of the dtype lies within the bounds."""
    if space.dtype.kind not in 'iu':
        return space.dtype.kind == 'b'
    (low, high), info = bounds(space), np.iinfo(space.dtype)
    return bool((low == info.min).all() and (high == info.max).all())


def _first(mask: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first True of an array, None if there is none."""
    found = np.argwhere(mask)
    return tuple(found[0].tolist()) if len(found) else None


def _outside(name: str, value: np.ndarray, where: tuple[int, ...]) -> str:
    """Return the beginning of a message about one entry of an array."""
    index = where[0] if len(where) == 1 else where
    what = f'entry {index}' if where else 'it'
    seen = f'{what} is {value[where]!s}'  # with no more digits than it has
    return f'{name} is outside of its space: {seen}'


def narrow(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return whole numbers in an integer dtype, or as they are where it cannot hold them.

    >>> narrow(np.array([1, 2]), np.dtype(np.uint8)).dtype
    dtype('uint8')
    >>> narrow(np.array([1, 256]), np.dtype(np.uint8)).tolist()
    [1, 256]
    """
    cast = value.astype(dtype)
    return cast if np.array_equal(cast, value) else value


def to_float32(name: str, value: Any) -> np.ndarray:
    """Return numbers as a new float32 array. Raises UserError for a finite one too large.

    >>> to_float32('height', np.float64(1.5)).dtype
    dtype('float32')
    >>> to_float32('height', np.float64(1e300))
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: height is outside of its space: it is 1e+300, which ...
    """
    value = np.asarray(value)
    with np.errstate(over='ignore'):
        cast = value.astype(np.float32)
    if np.isfinite(cast).all():
        return cast
    where = _first(np.isinf(cast) & np.isfinite(value))
    if where is not None:
        raise UserError(
            f'{_outside(name, value, where)}, which does not fit float32 (up to '
            f'{np.finfo(np.float32).max:.1e}); scale it in the environment.'
        )
    return cast


def contains(space: Any, value: Any) -> bool:
    """Return whether a value is in a space; a Guard does the same faster for many values.

    >>> contains(elements.Space(np.int32, (), 0, 5), np.int32(5))
    False
    """
    return Guard(space).contains(value)


def check(name: str, space: Any, value: Any) -> None:
    """Raise a UserError if a value is not in a space; see Guard.

    >>> check('move', elements.Space(np.int32, (), 0, 5), np.int32(5))
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: move is outside of its space: it is 5, expected from 0 to 4.
    """
    Guard(space).check(name, value)


def check_names(obs_space: Any, act_space: Any) -> None:
    """Raise a UserError for a key that others of the run use, that is none, or that lacks.

    Observations and actions of a step are stored side by side, together with what the replay
    adds, and sent with what a parallel run adds.

    >>> flags = {k: elements.Space(bool) for k in ('is_first', 'is_last', 'is_terminal')}
    >>> obs_space = {**flags, 'reward': elements.Space(np.float32)}
    >>> check_names(obs_space, {'reset': elements.Space(bool)})
    >>> check_names(obs_space, {'reset': elements.Space(bool), 'reward': elements.Space(bool)})
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: Action 'reward' has the name of an observation; ...
    """
    for key in FLAGS:
        _check_flag('Observation', key, obs_space, 'f' if key == 'reward' else 'b')
    _check_flag('Action', 'reset', act_space, 'b')
    for what, keys in (('Observation', obs_space), ('Action', act_space)):
        for key in keys:
            if not isinstance(key, str) or not key:
                raise UserError(f'{what} {key!r} needs a name that is a text.')
            if key in RESERVED:
                raise _taken(f'{what} {key!r} has a name that runs use themselves')
    for key in act_space:
        if key in obs_space:
            raise _taken(f'Action {key!r} has the name of an observation')
        if key.startswith(LOG):
            raise _taken(f'Action {key!r} begins with {LOG}, as logged observations do')


def _check_flag(what: str, key: str, found: Any, kind: str) -> None:
    """Raise a UserError unless the spaces hold one value of a kind of dtype under a name."""
    space = found.get(key)
    if space is None or space.shape or space.dtype.kind != kind:
        wanted = 'one float' if kind == 'f' else 'one bool'
        seen = 'none' if space is None else describe(space)
        raise UserError(f'{what} {key!r} must be {wanted} in every environment; found {seen}.')


def _taken(text: str) -> UserError:
    return UserError(f'{text}; rename it in the environment, or with a wrapper.')


def join_keys(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one dict of all parts. Raises UserError for a key that two of them have.

    >>> join_keys([{'arm': 1}, {'leg': 2}])
    {'arm': 1, 'leg': 2}
    """
    joined: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key in joined:
                raise _taken(f'Two entries of a space would both be named {key!r}')
            joined[key] = value
    return joined


def describe(space: Any) -> str:
    """Return dtype, shape and the inclusive bounds of a space in words.

    >>> describe(elements.Space(np.int32, (3,), 0, 5))
    'dtype int32, shape (3,), from 0 to 4'
    """
    if is_text(space):
        return f'text, shape {space.shape}'
    low, high = bounds(space)
    return f'dtype {space.dtype}, shape {space.shape}, from {low.min()} to {high.max()}'


def sample(space: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw one value: uniform within the bounds, normal where a float has no bounds.

    Where only one bound is finite, the draw is that bound moved inwards by |normal|.

    >>> space = elements.Space(np.float32, (3,), -1, 1)
    >>> contains(space, sample(space, np.random.default_rng(0)))
    True
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
