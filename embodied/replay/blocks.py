"""Memory of chunks: taken for all workers of a batch at once, and used again.

Fresh memory costs as much time as filling it does, since the system clears every page of it.
"""

import math
import weakref
from collections.abc import Mapping

import numpy as np

from .chunk import Arrays, Chunk, Spec

ALIGNMENT = 64


class Block:
    """Room for `size` steps in each of `rows` chunks: arrays (rows, size, …) per key.

    It lives as long as any part of its arrays does, so that chunks of a batch, which begin
    together and are filled together, best leave together.
    """

    def __init__(self, arrays: Arrays, rows: int):
        self.arrays = arrays
        self.rows = rows

    def row(self, index: int) -> Arrays:
        """Return the arrays of one chunk."""
        return {key: array[index] for key, array in self.arrays.items()}


class Blocks:
    """Hands out blocks of one spec. Memory comes back when nothing refers to it any more.

    Whoever still reads steps that have left keeps their memory from being used again. `limit`:
    rows that are kept for later, as many as there are workers that will need them.
    """

    def __init__(self, size: int):
        self.limit = 0
        self._size = size
        self._free: list[tuple[int, np.ndarray]] = []  # rows, memory

    def take(self, spec: Spec, rows: int) -> Block:
        """Return a block whose contents are arbitrary."""
        offsets, end = [], 0
        for shape, dtype in spec.values():
            offsets.append(end)
            bytes_ = rows * self._size * math.prod(shape) * dtype.itemsize
            end += -(-bytes_ // ALIGNMENT) * ALIGNMENT
        memory = self._used(rows, end)
        # Arrays refer to the owner of what they view, and that must not be the memory itself.
        owner = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(owner, self._give_back, rows, memory).atexit = False
        arrays = {
            key: np.ndarray((rows, self._size, *shape), dtype, owner, offset)
            for (key, (shape, dtype)), offset in zip(spec.items(), offsets, strict=True)
        }
        return Block(arrays, rows)

    def _used(self, rows: int, bytes_: int) -> np.ndarray:
        for entry in self._free:
            if entry[0] == rows and len(entry[1]) == bytes_:
                self._free = [x for x in self._free if x is not entry]
                return entry[1]
        return np.empty(max(1, bytes_), np.uint8)

    def _give_back(self, rows: int, memory: np.ndarray) -> None:
        """Keep memory for the next blocks, the latest instead of any that did not fit them."""
        free = [*self._free, (rows, memory)]
        while free and sum(x[0] for x in free) > self.limit:
            free.pop(0)
        self._free = free


def write(places: list[tuple[Chunk, int]], steps: Mapping[str, np.ndarray]) -> None:
    """Write steps (n, …) to n places, at once where they are one slice of a block."""
    (block, _), index = places[0][0].place, places[0][1]
    wanted = [((block, row), index) for row in range(len(places))]
    if block and [(chunk.place, i) for chunk, i in places] == wanted:
        for key, values in steps.items():
            block.arrays[key][: len(places), index] = values
        return
    targets = [(chunk.arrays, i) for chunk, i in places]
    for key, values in steps.items():
        for (arrays, i), value in zip(targets, values, strict=True):
            arrays[key][i] = value
