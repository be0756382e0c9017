"""Selectors: what decides which items are sampled next.

Keys are non-negative ints. `selector[key] = stepids` (length, 20) inserts an item with the ids
of its steps, `del selector[key]` removes it, `selector()` picks a key and `draw(n)` n of them
(with items only), and `prioritize(stepids, priorities)` tells what is known of single steps. A
selector is used under the lock of its replay.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

import numpy as np

from .places import Places
from .prioritized import Prioritized, SampleTree
from .ring import Ring

__all__ = [
    'Fifo', 'Mixture', 'Prioritized', 'Recency', 'SampleTree', 'Selector', 'Uniform', 'make'
]  # fmt: skip


class Selector(Protocol):
    """Name what a replay asks of a selector.

    It may also have `draw(count)`, which returns a list of keys.

    >>> class Newest:
    ...     def __init__(self): self.keys = []
    ...     def __len__(self): return len(self.keys)
    ...     def __call__(self): return self.keys[-1]
    ...     def __setitem__(self, key, stepids): self.keys.append(key)
    ...     def __delitem__(self, key): self.keys.remove(key)
    ...     def prioritize(self, stepids, priorities): pass
    >>> selector: Selector = Newest()
    >>> selector[3] = selector[4] = None
    >>> selector()
    4
    """

    def __len__(self) -> int: ...

    def __call__(self) -> Any: ...

    def __setitem__(self, key: Any, stepids: Any) -> None: ...

    def __delitem__(self, key: Any) -> None: ...

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None: ...


class Fifo:
    """Pick the oldest item, always; it stays until it is removed.

    >>> selector = Fifo()
    >>> selector[3] = selector[4] = None  # an age needs no ids of steps
    >>> selector(), selector.draw(2)
    (3, [3, 3])
    >>> del selector[3]
    >>> selector()
    4
    """

    def __init__(self) -> None:
        self._keys = Ring()

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self) -> int:
        return self._keys[0]

    def draw(self, count: int) -> list:
        """Pick the oldest `count` times."""
        return count * [self._keys[0]]

    def __setitem__(self, key: int, stepids: Any) -> None:
        self._keys.append(key)

    def __delitem__(self, key: int) -> None:
        self._keys.remove(key)

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """Ages know no priorities."""


class Uniform:
    """Pick every item with the same probability; the seed and the calls decide.

    >>> selector = Uniform(seed=0)
    >>> selector[3] = selector[4] = None
    >>> sorted(set(selector.draw(100)))
    [3, 4]
    """

    def __init__(self, seed: int = 0):
        self._places = Places()
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self) -> Any:
        return self.draw(1)[0]

    def draw(self, count: int) -> list:
        """Pick `count` items, independently of each other."""
        places = self._rng.integers(len(self._places), size=count)
        return self._places.keys(places).tolist()

    def __setitem__(self, key: Hashable, stepids: Any) -> None:
        self._places.add(key)

    def __delitem__(self, key: Hashable) -> None:
        self._places.remove(key)

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """All items stay alike."""


class Recency:
    """Pick the n-th newest item with a probability proportional to n ** -exponent.

    Removing another than the oldest item moves all that are older.

    Raises ValueError if the exponent is below 0.

    >>> selector = Recency(exponent=2.0)
    >>> selector[3] = selector[4] = None
    >>> picked = selector.draw(1000)
    >>> 3 < picked.count(4) / picked.count(3) < 5  # the newest is picked 2 ** 2 times as often
    True
    """

    def __init__(self, exponent: float = 1.0, seed: int = 0):
        if not exponent >= 0:
            raise ValueError(f'The exponent {exponent} of recency must be at least 0.')
        self._exponent = exponent
        self._keys = Ring()
        self._rng = np.random.default_rng(seed)
        self._sums = np.zeros(0)  # of the weights of the n newest items

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self) -> int:
        return self.draw(1)[0]

    def draw(self, count: int) -> list:
        """Pick `count` items, independently of each other."""
        size = len(self._keys)
        if size > len(self._sums):
            ages = np.arange(1, 2 * size + 1, dtype=np.float64)
            self._sums = np.cumsum(ages**-self._exponent)
        limits = self._rng.random(count) * self._sums[size - 1]
        newer = np.searchsorted(self._sums[:size], limits, side='right')
        return self._keys.take(size - 1 - newer).tolist()

    def __setitem__(self, key: int, stepids: Any) -> None:
        self._keys.append(key)

    def __delitem__(self, key: int) -> None:
        self._keys.remove(key)

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """Ages know no priorities."""


class Mixture:
    """Leave each pick to one of several named selectors, drawn in proportion to `fractions`.

    All of them hold the same items; those with the fraction 0 are left out.

    Raises ValueError if the names differ or the fractions do not sum to 1.

    >>> parts = {'old': Fifo(), 'any': Uniform()}
    >>> selector = Mixture(parts, {'old': 0.5, 'any': 0.5})
    >>> selector[3] = selector[4] = None
    >>> picked = selector.draw(1000)
    >>> 2 < picked.count(3) / picked.count(4) < 4  # 3/4 and 1/4
    True
    """

    def __init__(
        self, selectors: Mapping[str, Any], fractions: Mapping[str, float], seed: int = 0
    ):
        if selectors.keys() != fractions.keys():
            raise ValueError(f'Selectors {sorted(selectors)} have fractions {dict(fractions)}.')
        shares = np.array(list(fractions.values()), np.float64)
        if not (shares >= 0).all() or not abs(shares.sum() - 1) < 1e-6:
            raise ValueError(f'Fractions must be shares that sum to 1: {dict(fractions)}.')
        used = [name for name, share in fractions.items() if share > 0]
        self._selectors = [selectors[name] for name in used]
        self._probs = np.array([fractions[name] for name in used]) / shares.sum()
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._selectors[0])

    def __call__(self) -> Any:
        return self.draw(1)[0]

    def draw(self, count: int) -> list:
        """Pick `count` items, independently of each other."""
        choice = self._rng.choice(len(self._selectors), size=count, p=self._probs).tolist()
        drawn = [
            iter(draw(selector, choice.count(index)))
            for index, selector in enumerate(self._selectors)
        ]
        return [next(drawn[index]) for index in choice]

    def __setitem__(self, key: Any, stepids: Any) -> None:
        for selector in self._selectors:
            selector[key] = stepids

    def __delitem__(self, key: Any) -> None:
        for selector in self._selectors:
            del selector[key]

    def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
        """Tell all."""
        for selector in self._selectors:
            selector.prioritize(stepids, priorities)


def draw(selector: Any, count: int) -> list:
    """Pick `count` items, one by one where the selector knows no other way.

    >>> class Always:
    ...     def __call__(self): return 7
    >>> draw(Always(), 3)
    [7, 7, 7]
    """
    if hasattr(selector, 'draw'):
        return selector.draw(count) if count else []
    return [selector() for _ in range(count)]


def needs_ids(selector: Any) -> bool:
    """Return whether a selector looks at the ids of the steps of an item that it takes in.

    >>> needs_ids(Uniform()), needs_ids(Prioritized())
    (False, True)
    """
    parts = getattr(selector, '_selectors', None)
    if parts is not None:
        return any(needs_ids(part) for part in parts)
    return type(selector) not in (Fifo, Recency, Uniform)


def generators(selector: Any) -> list[np.random.Generator]:
    """Return what a selector draws from, and the selectors it is made of, in a fixed order.

    >>> mixture = Mixture({'a': Uniform(), 'b': Fifo()}, {'a': 0.5, 'b': 0.5})
    >>> len(generators(mixture))  # its own, and that of the uniform one
    2
    """
    own = [selector._rng] if hasattr(selector, '_rng') else []
    return own + [
        rng for part in getattr(selector, '_selectors', []) for rng in generators(part)
    ]


def make(
    fracs: Mapping[str, float], prio: Mapping[str, Any], recexp: float, seed: int = 0
) -> Uniform | Mixture:
    """Build what `replay.fracs`, `replay.prio` and `replay.recexp` of a config describe.

    >>> fracs = {'uniform': 0.5, 'priority': 0.0, 'recency': 0.5}
    >>> type(make(fracs, prio={}, recexp=1.0)).__name__
    'Mixture'
    """
    if fracs['uniform'] == 1:
        return Uniform(seed)
    seeds = np.random.SeedSequence(seed).generate_state(4).tolist()
    parts = {
        'uniform': Uniform(seeds[0]),
        'priority': Prioritized(**dict(prio), seed=seeds[1]),
        'recency': Recency(recexp, seeds[2]),
    }
    return Mixture(parts, dict(fracs), seeds[3])
