"""A queue of integers in one numpy array: 8 bytes per entry, whatever their number."""

import numpy as np


class Ring:
    """int64 values in order of insertion; the array doubles when it is full.

    Appending, taking the oldest and reading by place take constant time. Removing another
    than the oldest moves the rest.
    """

    def __init__(self) -> None:
        self._array = np.zeros(16, np.int64)
        self._head = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        """Return the value at a place; place 0 is the oldest."""
        if not 0 <= place < self._count:
            raise IndexError(place)
        return int(self._array[(self._head + place) % len(self._array)])

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the values at places from 0 on."""
        return self._array.take(self._head + places, mode='wrap')

    def append(self, value: int) -> None:
        if self._count == len(self._array):
            self._store(self.values(), 2 * self._count)
        self._array[(self._head + self._count) % len(self._array)] = value
        self._count += 1

    def popleft(self) -> int:
        """Remove the oldest value and return it."""
        value = self[0]
        self._head = (self._head + 1) % len(self._array)
        self._count -= 1
        return value

    def remove(self, value: int) -> None:
        """Remove the first occurrence of a value; KeyError if there is none."""
        if self._count and self[0] == value:
            self.popleft()
            return
        values = self.values()
        places = np.nonzero(values == value)[0]
        if not len(places):
            raise KeyError(value)
        self._store(np.delete(values, places[0]), len(self._array))

    def values(self) -> np.ndarray:
        """Return a copy of all values, the oldest first."""
        places = np.arange(self._head, self._head + self._count)
        return self._array.take(places, mode='wrap')

    def _store(self, values: np.ndarray, size: int) -> None:
        self._array = np.zeros(size, np.int64)
        self._array[: len(values)] = values
        self._head, self._count = 0, len(values)
