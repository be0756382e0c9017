"""Selectors: what decides which item is sampled next.

Keys are non-negative ints. `selector[key] = stepids` (length, 20) inserts an item with the ids
of its steps, `del selector[key]` removes it, `selector()` picks a key (with items only), and
`prioritize(stepids, priorities)` tells what is known of single steps. A selector is used under
the lock of its replay.
"""

from typing import Any, Protocol

import numpy as np

from .ring import Ring


class Selector(Protocol):
    """What a replay asks of a selector."""

    def __len__(self) -> int: ...

    def __call__(self) -> int: ...

    def __setitem__(self, key: int, stepids: np.ndarray) -> None: ...

    def __delitem__(self, key: int) -> None: ...

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None: ...


class Fifo:
    """Always picks the oldest item, which stays until it is removed."""

    def __init__(self) -> None:
        self._keys = Ring()

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self) -> int:
        return self._keys[0]

    def __setitem__(self, key: int, stepids: Any) -> None:
        self._keys.append(key)

    def __delitem__(self, key: int) -> None:
        self._keys.remove(key)

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """Ages know no priorities."""


class Uniform:
    """Picks every item with the same probability; the seed and the calls decide."""

    def __init__(self, seed: int = 0):
        self._keys = Ring()
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self) -> int:
        return self._keys[int(self._rng.integers(len(self._keys)))]

    def __setitem__(self, key: int, stepids: Any) -> None:
        self._keys.append(key)

    def __delitem__(self, key: int) -> None:
        self._keys.remove(key)

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """All items stay alike."""
