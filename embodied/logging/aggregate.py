"""Metrics between two logs, reduced to one value each."""

from collections.abc import Mapping
from typing import Any

import numpy as np


class Aggregate:
    """Keep means of scalars, and the last vector, image, video or text of each name.

    >>> aggregate = Aggregate()
    >>> aggregate.add({'loss': 1.0, 'note': 'first'}, prefix='train')
    >>> aggregate.add({'loss': 2.0, 'note': 'second'}, prefix='train')
    >>> result = aggregate.result()
    >>> float(result['train/loss']), result['train/note']
    (1.5, 'second')
    """

    def __init__(self) -> None:
        self._reset()

    def add(self, mapping: Mapping[str, Any], prefix: str | None = None) -> None:
        """Add metrics. Arrays are copied: what the caller does with them later is his own."""
        for key, value in mapping.items():
            name = f'{prefix}/{key}' if prefix else key
            if isinstance(value, str):
                self._last[name] = value
            elif np.ndim(value):
                self._last[name] = np.array(value)
            else:
                self._sums[name] = self._sums.get(name, 0.0) + float(value)
                self._counts[name] = self._counts.get(name, 0) + 1

    def result(self) -> dict[str, Any]:
        """Return name -> value and start anew."""
        means = {name: np.float64(x / self._counts[name]) for name, x in self._sums.items()}
        result = {**means, **self._last}
        self._reset()
        return result

    def _reset(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last: dict[str, Any] = {}
