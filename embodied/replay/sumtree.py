"""Drawing in proportion to weights that change: sums of weights, level by level."""

from typing import Any

import numpy as np

FANOUT = 128  # children per node: few levels, each a short row of numbers
PENDING = 2**16  # changes of leaves that are collected before the sums follow


class SumTree:
    """Weights at places 0, 1, …, and the sums of each `FANOUT` of them, and of their sums.

    Weights are at least 0. Places of weight inf are drawn before all finite ones, each with the
    same probability; so are all places if every weight is 0. Sums are computed anew from what
    is below them, so that rounding does not add up, and only before they are needed.
    """

    def __init__(self) -> None:
        self._levels = [np.zeros(FANOUT)]  # leaves, their sums, …, down to FANOUT numbers
        self._infinite = [np.zeros(0)]  # how many leaves are inf, from the second level on
        self._changed: list[int] = []

    def __getitem__(self, places: Any) -> Any:
        """Return the weights at places."""
        return self._levels[0][places]

    def __setitem__(self, place: int, weight: float) -> None:
        """Set one weight; the arrays grow as needed."""
        if place >= len(self._levels[0]):
            self._grow(place)
        self._levels[0][place] = weight
        self._changed.append(place)
        if len(self._changed) >= PENDING:
            self._sum_up()

    def set(self, places: np.ndarray, weights: np.ndarray) -> None:
        """Set weights at places that were set before."""
        self._levels[0][places] = weights
        self._sum_up(places)

    def draw(self, count: int, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `count` of the places 0 … size - 1, independently of each other."""
        if self._changed:
            self._sum_up()
        infinite = bool(np.isinf(self._levels[-1]).any())
        if not infinite and not self._levels[-1].any():
            return rng.integers(size, size=count)
        nodes = np.zeros(count, np.int64)
        for depth in reversed(range(len(self._levels))):
            rows = self._rows(depth, infinite)[nodes]
            if infinite and depth == 0:
                rows = np.isinf(rows)
            sums = rows.cumsum(1)
            # A fraction below 1 of the sum is below the sum; the first larger partial sum is
            # that of a child whose weight is not 0.
            limits = rng.random(count) * sums[:, -1]
            nodes = nodes * FANOUT + (sums <= limits[:, None]).sum(1)
        return nodes

    def _rows(self, depth: int, infinite: bool) -> np.ndarray:
        levels = self._infinite if infinite and depth else self._levels
        return levels[depth].reshape(-1, FANOUT)

    def _sum_up(self, places: Any = None) -> None:
        """Let the sums follow the changed leaves."""
        if places is None or self._changed:
            places = [*self._changed, *([] if places is None else places)]
            self._changed = []
        nodes = np.asarray(places, np.int64)
        for depth in range(1, len(self._levels)):
            nodes = np.unique(nodes // FANOUT)
            below = self._rows(depth - 1, False)[nodes]
            self._levels[depth][nodes] = below.sum(1)
            if depth == 1:
                counts = np.isinf(below).sum(1)
            else:
                counts = self._rows(depth - 1, True)[nodes].sum(1)
            self._infinite[depth][nodes] = counts

    def _grow(self, place: int) -> None:
        """Make room for a place, and for as many again."""
        leaves = np.zeros(-(-2 * (place + 1) // FANOUT) * FANOUT)
        leaves[: len(self._levels[0])] = self._levels[0]
        self._levels, self._infinite = [leaves], [np.zeros(0)]
        while len(self._levels[-1]) > FANOUT:
            nodes = len(self._levels[-1]) // FANOUT
            size = -(-nodes // FANOUT) * FANOUT
            self._levels.append(np.zeros(size))
            self._infinite.append(np.zeros(size))
        self._changed = []
        self._sum_up(np.arange(place))
