"""Selectors that draw in proportion to weights (prioritised replay, Schaul et al., 2016)."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from . import windows
from .places import Places
from .sumtree import SumTree


class SampleTree:
    """Hold keys with weights of at least 0; `sample()` picks one in proportion to its weight.

    Weights of inf come before all finite ones; if all are 0, all keys are alike.

    >>> tree = SampleTree()
    >>> tree.insert('a', 1.0)
    >>> tree.insert('b', 3.0)
    >>> picked = tree.draw(1000)
    >>> 2 < picked.count('b') / picked.count('a') < 4
    True
    >>> tree.update('b', 0.0)
    >>> tree.sample()
    'a'
    """

    def __init__(self, seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self._places = Places()
        self._tree = SumTree()

    def __len__(self) -> int:
        return len(self._places)

    def insert(self, key: Hashable, weight: float) -> None:
        """Take in a new key."""
        _check(weight)
        self._tree[self._places.add(key)] = weight

    def remove(self, key: Hashable) -> None:
        """Take out a key; KeyError if it is not there."""
        hole, last = self._places.remove(key)
        self._tree[hole] = self._tree[last]
        self._tree[last] = 0.0

    def update(self, key: Hashable, weight: float) -> None:
        """Change the weight of a key; KeyError if it is not there."""
        _check(weight)
        self._tree[self._places.place(key)] = weight

    def sample(self) -> Any:
        """Pick a key."""
        return self.draw(1)[0]

    def draw(self, count: int) -> list:
        """Pick `count` keys, independently of each other."""
        places = self._tree.draw(count, len(self), self._rng)
        return self._places.keys(places).tolist()


class Prioritized:
    """Pick items in proportion to the priorities of their steps.

    The weight of an item is maxfrac * max + (1 - maxfrac) * mean over its steps of
    priority ** exponent. Steps without a priority have `initial`; inf comes before all finite
    weights. If all weights are 0, all items are alike. zero_on_sample: the steps of a picked
    item get priority 0, in all items that they are part of. All items have the same length.

    Raises ValueError for a maxfrac outside of [0, 1], and for an exponent or an initial
    priority below 0.

    >>> selector = Prioritized(initial=1.0)
    >>> ids = np.arange(4 * 20, dtype=np.uint8).reshape(4, 20)
    >>> selector[0], selector[1] = ids[:2], ids[2:]  # two items of two steps each
    >>> selector.prioritize(ids, np.array([0.0, 0.0, 1.0, 1.0]))
    >>> selector.draw(3)
    [1, 1, 1]
    """

    def __init__(
        self,
        exponent: float = 1.0,
        initial: float = np.inf,
        zero_on_sample: bool = False,
        maxfrac: float = 0.0,
        seed: int = 0,
    ):
        if not 0 <= maxfrac <= 1 or not exponent >= 0:
            raise ValueError(f'maxfrac {maxfrac} must be in [0, 1], exponent {exponent} >= 0.')
        _check(initial)
        self._exponent = exponent
        self._initial = float(initial) ** exponent
        self._zero = 0.0**exponent
        self._zero_on_sample = zero_on_sample
        self._maxfrac = maxfrac
        self._rng = np.random.default_rng(seed)
        self._places = Places()
        self._tree = SumTree()
        self._starts = np.zeros(16, np.int64)  # slot where the item at each place begins
        self._windows: windows.Windows | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self) -> Any:
        return self.draw(1)[0]

    def __setitem__(self, key: Hashable, stepids: Any) -> None:
        ids = windows.join(stepids)
        if self._windows is None:
            self._windows = windows.Windows(len(ids) // 20, self._initial)
        if len(ids) != 20 * self._windows.length:
            raise ValueError(f'{len(ids)} bytes are not {self._windows.length} ids of steps.')
        place = self._places.add(key)
        if place == len(self._starts):
            self._starts = np.resize(self._starts, 2 * place)
        start = self._windows.insert(ids, place)
        self._starts[place] = start
        unseen = self._initial == np.inf  # then it needs no look at the other steps
        if unseen and self._windows[start][-1] == np.inf:
            self._tree[place] = np.inf
        else:
            self._tree[place] = float(self._weights(start))

    def __delitem__(self, key: Hashable) -> None:
        assert self._windows is not None
        hole, last = self._places.remove(key)
        self._windows.remove(int(self._starts[hole]))
        if hole != last:
            self._starts[hole] = self._starts[last]
            self._windows.move(int(self._starts[hole]), hole)
            self._tree[hole] = self._tree[last]
        self._tree[last] = 0.0

    def prioritize(self, stepids: Any, priorities: Any) -> None:
        """Set the priorities (n) of steps (n, 20); steps of no item are ignored.

        Raises ValueError for priorities below 0 and NaN.
        """
        if self._windows is None or not len(stepids):
            return
        values = np.asarray(priorities, np.float64).reshape(-1)
        if not (values >= 0).all():
            raise ValueError(f'Priorities must be at least 0, found {values.min()}.')
        ids = np.frombuffer(windows.join(stepids), np.uint8).reshape(-1, 20)
        self._refresh(self._windows.assign(ids, values**self._exponent))

    def draw(self, count: int) -> list:
        """Pick `count` items, each as if the tree followed at once from those before."""
        keys: list = []
        while len(keys) < count:
            places = self._tree.draw(count - len(keys), len(self), self._rng)
            kept = self._accept(places) if self._zero_on_sample else places
            keys += self._places.keys(kept).tolist()
        return keys

    def _accept(self, places: np.ndarray) -> list[int]:
        """Zero what was drawn, and drop draws that the draws before made less probable.

        Weights only fall here, so that a draw made with the old weights is one of the new
        weights if it is kept with the probability new / old (rejection sampling).
        """
        assert self._windows is not None
        length, accepted = self._windows.length, []
        zeroed: list[windows.Range] = []
        olds, starts = self._tree[places].tolist(), self._starts[places].tolist()
        for place, start, old in zip(places.tolist(), starts, olds, strict=True):
            if any(start < high and low < start + length for low, high in zeroed):
                new = float(self._weights(start))
                if new != old and (old == np.inf or self._rng.random() * old >= new):
                    continue
            accepted.append(place)
            zeroed += self._windows.clear(start, self._zero)
        self._refresh(zeroed)
        return accepted

    def _refresh(self, ranges: list[windows.Range]) -> None:
        """Let the weights follow the values in ranges of slots."""
        assert self._windows is not None
        starts = self._windows.touched(ranges)
        if len(starts):
            self._tree.set(self._windows.places(starts), self._weights(starts))

    def _weights(self, starts: Any) -> np.ndarray:
        assert self._windows is not None
        return windows.weigh(self._windows[starts], self._maxfrac)


def _check(weight: float) -> None:
    if not weight >= 0:
        raise ValueError(f'A weight or priority must be at least 0, found {weight}.')
