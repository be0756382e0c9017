"""Keys at places 0, 1, … without gaps, in numpy arrays instead of a dict."""

from typing import Any

import numpy as np


class Places:
    """Gives every key a place; the last key moves where another one is removed.

    A replay numbers its items one after the other, so that the places of its keys fit an array
    over the range of numbers in use: 8 bytes per key, and 8 for the key itself. All other keys
    (far-off numbers, any hashable) are looked up in a dict.
    """

    def __init__(self) -> None:
        self._keys = np.zeros(16, np.int64)
        self._count = 0
        self._base = 0
        self._window = np.full(16, -1, np.int32)  # place of the key `base` + i, or -1
        self._others: dict[Any, int] = {}

    def __len__(self) -> int:
        return self._count

    def keys(self, places: Any) -> np.ndarray:
        """Return the keys at places."""
        return self._keys[places]

    def add(self, key: Any) -> int:
        """Give a new key the next place and return it."""
        place = self._count
        if place == len(self._keys):
            self._keys = np.resize(self._keys, 2 * place)
        if type(key) is not int and self._keys.dtype != object:
            self._keys = self._keys.astype(object)
        self._keys[place] = key
        self._count += 1
        offset = key - self._base if type(key) is int else -1
        if offset >= len(self._window):
            self._move_window(key, place)
            offset = key - self._base
        if 0 <= offset < len(self._window):
            self._window[offset] = place
        else:
            self._others[key] = place
        return place

    def place(self, key: Any) -> int:
        """Return the place of a key; KeyError if it has none."""
        offset = key - self._base if type(key) is int else -1
        if 0 <= offset < len(self._window) and self._window[offset] >= 0:
            return int(self._window[offset])
        return self._others[key]

    def remove(self, key: Any) -> tuple[int, int]:
        """Remove a key; return its place and the last place, whose key moves there."""
        hole = self.place(key)
        last = self._count - 1
        self._set(self._keys[last], hole)
        self._keys[hole] = self._keys[last]
        self._set(key, -1)
        self._count = last
        return hole, last

    def _set(self, key: Any, place: int) -> None:
        """Change the place of a known key; -1 takes it away."""
        if key in self._others:
            self._others[key] = place
            if place < 0:
                del self._others[key]
        else:
            self._window[key - self._base] = place

    def _move_window(self, key: int, place: int) -> None:
        """Let the window begin at the lowest key in it and reach beyond `key`, if that pays."""
        offsets = np.nonzero(self._window >= 0)[0]
        lowest = self._base + int(offsets[0]) if len(offsets) else key
        needed = key - lowest + 1
        if needed > 8 * (place + 128):
            return
        window = np.full(2 * needed + 16, -1, np.int32)
        window[offsets + (self._base - lowest)] = self._window[offsets]
        self._window, self._base = window, lowest
