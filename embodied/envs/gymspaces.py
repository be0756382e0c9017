"""Spaces of Gymnasium or the old Gym as flat dicts of ours, with both ways between values.

Entries of nested Dict and Tuple spaces get keys joined by '/', numbers among them as text.
Discrete, MultiDiscrete, MultiBinary and integer boxes of at most 256 values become classes that
count from 0; all other boxes but observed images become float32 numbers. Arrays without entries
are left out. Values beside those of the space are passed on, for CheckSpaces to name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied.core import spaces
from embodied.core.errors import UserError

MOST = np.iinfo(np.int32).max  # classes that can be counted
CLASSES = 256  # whole numbers with a wider range than this are numbers, not classes


class Codec(NamedTuple):
    """Our spaces by key, value of theirs -> our arrays by key, our arrays -> theirs."""

    spaces: dict[str, elements.Space]
    encode: Callable[[Any], dict[str, np.ndarray]]
    decode: Callable[[dict[str, Any]], Any]


def codec(space: Any, name: str, split: bool = False, top: bool = True) -> Codec:
    """Translate a space whose own key is `name`; keys of a Dict at the top have no prefix.

    With `split`, as for actions, an array of classes with unequal counts becomes one key per
    entry: name/0, name/1, …. Raises UserError for kinds that have no fixed shape, for more
    classes than can be counted, and if two entries would get the same key.
    """
    kinds = _kinds(space)
    if 'Dict' in kinds:
        prefix = '' if top else f'{name}/'
        parts = {k: codec(v, f'{prefix}{k}', split, False) for k, v in space.spaces.items()}
        return _nested(parts, prefix)
    if 'Tuple' in kinds:
        parts = {i: codec(v, f'{name}/{i}', split, False) for i, v in enumerate(space.spaces)}
        nested = _nested(parts, f'{name}/')
        return nested._replace(decode=lambda act: tuple(nested.decode(act).values()))
    if 0 in (space.shape or ()):
        return Codec({}, lambda value: {}, lambda act: np.zeros(space.shape, space.dtype))
    if is_image(space) and not split:
        return _image(space, name)
    counts, start = _counts(space, name)
    if counts is None:
        return _numbers(space, name)
    if counts.max() > MOST:
        raise UserError(
            f'Space {space} of {name!r} has {counts.max():,} classes; expected at most '
            f'{MOST:,}, the numbers of int32. Make it a Box of floats with a wrapper.'
        )
    if split and len(set(counts.flat)) > 1:
        return _split(space, name, counts, start)
    return _classes(space, name, counts, start)


def is_image(space: Any) -> bool:
    """Whether a space holds uint8 arrays with three axes."""
    return space.dtype == np.uint8 and len(space.shape or ()) == 3


def _counts(space: Any, name: str) -> tuple[Any, Any]:
    """Number of classes and first class of each entry; (None, None) for numbers."""
    kinds = _kinds(space)
    if 'Discrete' in kinds:
        return np.asarray(int(space.n)), np.asarray(int(getattr(space, 'start', 0)))
    if 'MultiDiscrete' in kinds:
        start = getattr(space, 'start', None)  # which old versions do not have
        return np.asarray(space.nvec), np.zeros_like(space.nvec) if start is None else start
    if 'MultiBinary' in kinds:
        return np.full(space.shape, 2), np.zeros(space.shape, int)
    if 'Box' not in kinds:
        raise UserError(
            f'Space {space} of {name!r} is not supported; expected Box, Discrete, '
            'MultiDiscrete, MultiBinary, Dict or Tuple. Convert it with a Gymnasium wrapper.'
        )
    if np.issubdtype(space.dtype, np.floating):
        return None, None
    ranges = space.high.astype(float) - space.low.astype(float) + 1
    if ranges.max() > CLASSES:
        return None, None
    return ranges.astype(int), space.low.astype(int)


def _kinds(space: Any) -> set[str]:
    """Names of the classes of a space, so that it may be of either package."""
    return {kind.__name__ for kind in type(space).__mro__}


def _nested(parts: dict[Any, Codec], prefix: str) -> Codec:
    merged = spaces.join_keys(part.spaces for part in parts.values())

    def encode(value: Any) -> dict[str, Any]:
        found = value if isinstance(value, Mapping) else range(len(value))
        encoded = {f'{prefix}{i}': value[i] for i in found if i not in parts}
        for index, part in parts.items():
            encoded |= part.encode(value[index])
        return encoded

    def decode(act: dict[str, Any]) -> Any:
        return {index: part.decode(act) for index, part in parts.items()}

    return Codec(merged, encode, decode)


def _image(space: Any, name: str) -> Codec:
    low, high = space.low.astype(int), space.high.astype(int) + 1
    image = elements.Space(np.uint8, space.shape, low, high)
    return Codec(
        {name: image}, lambda value: {name: np.array(value)}, lambda act: np.asarray(act[name])
    )


def _classes(space: Any, name: str, counts: np.ndarray, start: np.ndarray) -> Codec:
    def encode(value: Any) -> dict[str, np.ndarray]:
        value = np.asarray(value)
        with np.errstate(invalid='ignore'):
            whole = value.astype(np.int64)
        if value.dtype.kind == 'f' and not np.array_equal(whole, value):
            return {name: value}  # for CheckSpaces to refuse
        return {name: spaces.narrow(whole - start, np.dtype(np.int32))}

    def decode(act: dict[str, Any]) -> Any:
        return (np.asarray(act[name]) + start).astype(space.dtype)[()]

    classes = elements.Space(np.int32, counts.shape, 0, int(counts.max()))
    return Codec({name: classes}, encode, decode)


def _split(space: Any, name: str, counts: np.ndarray, start: np.ndarray) -> Codec:
    keys = {f'{name}/{i}': int(n) for i, n in enumerate(counts.flat)}
    whole = _classes(space, name, counts, start)

    def encode(value: Any) -> dict[str, np.ndarray]:
        return dict(zip(keys, whole.encode(value)[name].flat, strict=True))

    def decode(act: dict[str, Any]) -> Any:
        return whole.decode({name: np.array([act[key] for key in keys]).reshape(counts.shape)})

    classes = {key: elements.Space(np.int32, (), 0, n) for key, n in keys.items()}
    return Codec(classes, encode, decode)


def _numbers(space: Any, name: str) -> Codec:
    """Bounds are rounded to float32 like the values, so that these stay inside of them."""
    with np.errstate(over='ignore'):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)

    def encode(value: Any) -> dict[str, np.ndarray]:
        return {name: spaces.to_float32(f'Observation {name!r}', value)}

    def decode(act: dict[str, Any]) -> np.ndarray:
        value = np.asarray(act[name], np.float64)
        if np.issubdtype(space.dtype, np.integer):
            value = np.rint(value)
        return np.asarray(np.clip(value, space.low, space.high), space.dtype)

    return Codec({name: elements.Space(np.float32, space.shape, low, high)}, encode, decode)
