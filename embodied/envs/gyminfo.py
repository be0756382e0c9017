"""What a Gymnasium environment reports in `info`, as values under `log/`."""

import numbers
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from embodied.core import warn
from embodied.core.errors import UserError

DEPTH = 4  # of dicts in dicts
LONGEST = 10_000  # letters of a text
AXES = 3  # of an image


class Info:
    """Picks the entries of `info` that are logged.

    Those are the ones that begin with `log/`, and those whose whole name matches `pattern`.
    Entries of a dict in a dict have names joined by '/'. Numbers, vectors, images and texts
    are taken; None says that there is no value, and of all else one warning is printed.
    Raises UserError if the pattern is no regular expression.
    """

    def __init__(self, pattern: str = ''):
        try:
            self._pattern = re.compile(pattern) if pattern else None
        except re.error as error:
            raise UserError(
                f'{pattern!r} is not a regular expression: {error} (env.gym.info).'
            ) from error

    def __call__(self, info: Mapping) -> dict[str, np.ndarray]:
        """Return the values by name, all of which begin with `log/`."""
        found = {}
        for key, value in self._entries(info):
            array = _array(value)
            if array is not None:
                found[key if key.startswith('log/') else f'log/{key}'] = array
            elif value is not None:
                warn.once(
                    f'info {key}',
                    f'info[{key!r}] is a {type(value).__name__}, which is not logged; expected '
                    'a number, a vector, an image or a text.',
                )
        return found

    def _entries(self, info: Mapping) -> Iterator[tuple[str, Any]]:
        for key, value in _flat(info, '', DEPTH):
            if key.startswith('log/') or (self._pattern and self._pattern.fullmatch(key)):
                yield key, value


def _flat(info: Mapping, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in info.items():
        if isinstance(value, Mapping) and depth:
            yield from _flat(value, f'{prefix}{key}/', depth - 1)
        else:
            yield f'{prefix}{key}', value


def _array(value: Any) -> np.ndarray | None:
    """A value as an array of numbers or one text; None for anything else."""
    if isinstance(value, str):
        return np.asarray(value[:LONGEST])
    if isinstance(value, numbers.Real) and not isinstance(value, np.generic):
        try:
            return np.asarray(float(value))
        except OverflowError:
            return np.asarray(np.inf if value > 0 else -np.inf)
    try:
        array = np.array(value)
    except Exception:  # such as lists of unequal lengths
        return None
    if array.dtype.kind == 'U' and not array.ndim:
        return _array(str(array))
    if array.dtype.kind not in 'biuf' or array.ndim > AXES:
        return None
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array
