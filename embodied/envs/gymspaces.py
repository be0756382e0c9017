"""Spaces of Gymnasium or the old Gym as flat dicts of ours, with both ways between values.

Entries of nested Dict and Tuple spaces get keys joined by '/'. Discrete, MultiDiscrete,
MultiBinary and integer boxes of at most 256 values become classes that count from 0; all other
boxes but images become float32 numbers. Arrays without entries are left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied.core.errors import UserError

CLASSES = 256  # whole numbers with a wider range than this are numbers, not classes


class Codec(NamedTuple):
    """Our spaces by key, value of theirs -> our arrays by key, our arrays -> theirs."""

    spaces: dict[str, elements.Space]
    encode: Callable[[Any], dict[str, np.ndarray]]
    decode: Callable[[dict[str, Any]], Any]


def codec(space: Any, name: str, split: bool = False, top: bool = True) -> Codec:
    """Translate a space whose own key is `name`; keys of a Dict at the top have no prefix.

    With `split`, as for actions, an array of classes with unequal counts becomes one key per
    entry: name/0, name/1, …. Raises UserError for kinds that have no fixed shape.
    """
    kinds = _kinds(space)
    if 'Dict' in kinds:
        keys = {k: k if top else f'{name}/{k}' for k in space.spaces}
        return _nested({k: codec(v, keys[k], split, False) for k, v in space.spaces.items()})
    if 'Tuple' in kinds:
        parts = {i: codec(v, f'{name}/{i}', split, False) for i, v in enumerate(space.spaces)}
        nested = _nested(parts)
        return nested._replace(decode=lambda act: tuple(nested.decode(act).values()))
    if 0 in (space.shape or ()):
        return Codec({}, lambda value: {}, lambda act: np.zeros(space.shape, space.dtype))
    if is_image(space):
        return _image(space, name)
    counts, start = _counts(space, name)
    if counts is None:
        return _numbers(space, name)
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


def _nested(parts: dict[Any, Codec]) -> Codec:
    merged = {key: space for part in parts.values() for key, space in part.spaces.items()}

    def encode(value: Any) -> dict[str, np.ndarray]:
        return {k: x for i, part in parts.items() for k, x in part.encode(value[i]).items()}

    def decode(act: dict[str, Any]) -> Any:
        return {index: part.decode(act) for index, part in parts.items()}

    return Codec(merged, encode, decode)


def _image(space: Any, name: str) -> Codec:
    ours = elements.Space(np.uint8, space.shape, 0, 256)
    return Codec(
        {name: ours}, lambda value: {name: np.array(value)}, lambda act: np.asarray(act[name])
    )


def _classes(space: Any, name: str, counts: np.ndarray, start: np.ndarray) -> Codec:
    def encode(value: Any) -> dict[str, np.ndarray]:
        return {name: (np.asarray(value, np.int64) - start).astype(np.int32)}

    def decode(act: dict[str, Any]) -> Any:
        return (np.asarray(act[name]) + start).astype(space.dtype)[()]

    ours = elements.Space(np.int32, counts.shape, 0, int(counts.max()))
    return Codec({name: ours}, encode, decode)


def _split(space: Any, name: str, counts: np.ndarray, start: np.ndarray) -> Codec:
    keys = {f'{name}/{i}': int(n) for i, n in enumerate(counts.flat)}
    whole = _classes(space, name, counts, start)

    def encode(value: Any) -> dict[str, np.ndarray]:
        return dict(zip(keys, whole.encode(value)[name].flat, strict=True))

    def decode(act: dict[str, Any]) -> Any:
        return whole.decode({name: np.array([act[key] for key in keys]).reshape(counts.shape)})

    ours = {key: elements.Space(np.int32, (), 0, n) for key, n in keys.items()}
    return Codec(ours, encode, decode)


def _numbers(space: Any, name: str) -> Codec:
    """Bounds are rounded to float32 like the values, so that these stay inside of them."""
    with np.errstate(over='ignore'):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)

    def encode(value: Any) -> dict[str, np.ndarray]:
        return {name: np.array(value, np.float32)}

    def decode(act: dict[str, Any]) -> np.ndarray:
        value = np.asarray(act[name], np.float64)
        if np.issubdtype(space.dtype, np.integer):
            value = np.rint(value)
        return np.asarray(np.clip(value, space.low, space.high), space.dtype)

    return Codec({name: elements.Space(np.float32, space.shape, low, high)}, encode, decode)
