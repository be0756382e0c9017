"""A chunk: consecutive steps of one worker, one preallocated array per key."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Spec = dict[str, tuple[tuple[int, ...], np.dtype]]  # key -> shape and dtype of one step
Span = list[tuple[Arrays, int, int]]  # consecutive steps: arrays of a chunk, start, stop


class Chunk:
    """Up to `size` steps, and the chunk in which the worker went on.

    arrays: (size, …) per key, of which the first `length` steps are filled, `stepid` among
    them: 16 bytes of the chunk's id and 4 of the index, big-endian. Filled steps never move,
    so that a sequence can be copied while others are appended.
    """

    mapped = False  # whether the arrays are those of a file
    arrays: Arrays
    nbytes = 0  # in memory, of all arrays, filled or not
    spec: Spec  # without the stepid
    place: tuple[Any, int] = (None, 0)  # block and row that the arrays are, if any

    def __init__(self, size: int, length: int, uuid: bytes, time: str):
        self.size = size
        self.length = length
        self.uuid = uuid
        self.time = time
        self.number = -1  # in its replay, which packs number and index into one integer
        self.successor: Chunk | None = None
        self.refs = 0  # its steps that begin an item or may still begin one
        self.open = False  # whether a worker appends to it
        self.file = ''  # name of the file that holds it, if any
        self.grown = True  # whether steps or a successor came since that was written
        self.updated = False  # whether stored values changed since
        self.written = 0  # in the order of all writes of its replay

    def reserve(self) -> int:
        """Return the index for one more step, which may begin an item; `fill` it at once."""
        index = self.length
        self.length = index + 1
        self.refs += 1
        self.grown = True
        return index

    def give_back(self) -> None:
        """Take back the last `reserve`."""
        self.length -= 1
        self.refs -= 1

    def filled(self) -> None:
        """Say that all reserved steps have been written."""

    def link(self, successor: 'Chunk') -> None:
        """Go on in another chunk; nothing more is appended to this one."""
        self.successor = successor
        self.grown = True
        self.open = False

    def unseal(self, keys: Iterable[str]) -> None:
        """Say that values of these keys are about to be overwritten."""

    def position(self, index: int) -> int:
        """Return number and index of a step as one integer."""
        return self.number << 32 | index

    def available(self, length: int) -> int:
        """Return how many sequences of `length` steps begin in the filled steps."""
        following, chunk = 0, self.successor
        while chunk is not None and following < length - 1:
            following += chunk.length
            chunk = chunk.successor
        return min(self.length, max(0, self.length + following - length + 1))

    def parts(self, index: int, length: int) -> list[tuple['Chunk', int, int]]:
        """Return the chunks that hold `length` steps from `index` on: chunk, start, stop."""
        parts = []
        chunk: Chunk | None = self
        while length and chunk is not None:
            stop = min(chunk.length, index + length)
            parts.append((chunk, index, stop))
            length -= stop - index
            chunk, index = chunk.successor, 0
        return parts


class MemoryChunk(Chunk):
    """A chunk in memory; files hold copies of it."""

    def __init__(self, arrays: Arrays, length: int, uuid: bytes, time: str):
        size = len(next(iter(arrays.values())))
        super().__init__(size, length, uuid, time)
        self.spec = spec_of(arrays)
        self.arrays = {**arrays, 'stepid': stepids(uuid, size)}
        self.nbytes = sum(array.nbytes for array in self.arrays.values())


def stepids(uuid: bytes, size: int) -> np.ndarray:
    """Return the ids of the steps of a chunk: uint8 (size, 20)."""
    ids = np.empty((size, 20), np.uint8)
    ids[:, :16] = np.frombuffer(uuid, np.uint8)
    ids[:, 16:] = np.arange(size, dtype='>u4').view(np.uint8).reshape(size, 4)
    return ids


def gather(spans: list[Span], length: int) -> Arrays:
    """Copy spans of `length` steps into new arrays (spans, length, …)."""
    pieces = []
    for row, span in enumerate(spans):
        filled = 0
        for arrays, start, stop in span:
            pieces.append((arrays, start, stop, row, filled, filled + stop - start))
            filled += stop - start
    batch = {}
    for key, array in spans[0][0][0].items():
        out = np.empty((len(spans), length, *array.shape[1:]), array.dtype)
        for arrays, start, stop, row, first, last in pieces:
            out[row, first:last] = arrays[key][start:stop]
        batch[key] = out
    return batch


def spec_of(arrays: Mapping[str, Any]) -> Spec:
    """Return shape and dtype of one step, from arrays with a leading time axis."""
    return {k: (x.shape[1:], x.dtype) for k, x in arrays.items() if k != 'stepid'}
