"""A chunk: consecutive steps of one worker, one preallocated array per key."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Spec = dict[str, tuple[tuple[int, ...], np.dtype]]  # key -> shape and dtype of one step
Span = list[tuple['Chunk', int, int]]  # consecutive steps: chunk, start, stop


class Chunk:
    """Up to `size` steps, and the chunk in which the worker went on.

    arrays: (size, …) per key, of which the first `length` steps are filled, `stepid` among
    them: 16 bytes of the chunk's id and 4 of the index, big-endian. Filled steps never move,
    so that a sequence can be copied while others are appended.
    """

    def __init__(self, arrays: dict[str, np.ndarray], length: int, uuid: bytes, time: str):
        size = len(next(iter(arrays.values())))
        self.arrays = {**arrays, 'stepid': stepids(uuid, size)}
        self.length = length
        self.size = size
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

    @classmethod
    def allocate(cls, spec: Spec, size: int, uuid: bytes, time: str) -> 'Chunk':
        """Return an empty chunk with room for `size` steps."""
        arrays = {key: np.empty((size, *shape), dtype) for key, (shape, dtype) in spec.items()}
        return cls(arrays, 0, uuid, time)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, filled or not."""
        return sum(array.nbytes for array in self.arrays.values())

    def append(self, step: Mapping[str, np.ndarray]) -> int:
        """Store one step, which may begin an item, and return its position."""
        index = self.length
        for key, value in step.items():
            self.arrays[key][index] = value
        self.length = index + 1
        self.refs += 1
        self.grown = True
        return self.position(index)

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

    def span(self, index: int, length: int) -> Span:
        """Return where `length` steps from `index` on lie, in this chunk and those after it."""
        parts: Span = []
        chunk: Chunk | None = self
        while length and chunk is not None:
            stop = min(chunk.length, index + length)
            parts.append((chunk, index, stop))
            length -= stop - index
            chunk, index = chunk.successor, 0
        return parts


def stepids(uuid: bytes, size: int) -> np.ndarray:
    """Return the ids of the steps of a chunk: uint8 (size, 20)."""
    ids = np.empty((size, 20), np.uint8)
    ids[:, :16] = np.frombuffer(uuid, np.uint8)
    ids[:, 16:] = np.arange(size, dtype='>u4').view(np.uint8).reshape(size, 4)
    return ids


def gather(spans: list[Span], length: int) -> dict[str, np.ndarray]:
    """Copy spans of `length` steps into new arrays (spans, length, …)."""
    batch = {}
    for key, array in spans[0][0][0].arrays.items():
        out = np.empty((len(spans), length, *array.shape[1:]), array.dtype)
        for row, span in zip(out, spans, strict=True):
            filled = 0
            for chunk, start, stop in span:
                row[filled : filled + stop - start] = chunk.arrays[key][start:stop]
                filled += stop - start
        batch[key] = out
    return batch


def spec_of(arrays: Mapping[str, Any]) -> Spec:
    """Return shape and dtype of one step, from arrays with a leading time axis."""
    return {key: (array.shape[1:], array.dtype) for key, array in arrays.items()}
