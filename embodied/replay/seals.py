"""Checksums of complete mapped chunks: when they are taken, and when they go."""

import collections
import contextlib
from collections.abc import Iterable
from typing import Any

from .chunk import Chunk
from .mapped import MappedChunk


class Seals:
    """Gives all arrays of complete chunks checksums.

    Those of arrays whose values are overwritten afterwards go (`MappedChunk.unseal`), until a
    later `refresh` takes them again: an update would have to read too much, and a kill between
    values and checksum would look like damage. `values` is the lock for stored values, which
    is not held while they are read; what changes meanwhile gets no checksum.
    """

    def __init__(self, values: Any):
        self._values = values
        self._due: collections.deque[MappedChunk] = collections.deque()
        self._count = 0

    def add(self, chunk: Chunk) -> None:
        """Take note of a chunk in which its worker does not go on."""
        if isinstance(chunk, MappedChunk):
            self._due.append(chunk)

    def seal_next(self, lock: Any) -> None:
        """Seal one chunk of those that were added. lock: held by whoever fills chunks."""
        if self._due:
            with lock:
                chunk = self._due.popleft() if self._due else None
            if chunk:
                self._seal(chunk)

    def refresh(self, chunks: Iterable[Chunk], budget: int) -> None:
        """Seal complete chunks, those first that were not sealed for longest.

        No more chunks are begun once `budget` bytes were read.
        """
        self._due.clear()
        for chunk in sorted(chunks, key=lambda chunk: chunk.written):
            if isinstance(chunk, MappedChunk) and budget > 0:
                budget -= self._seal(chunk)

    def _seal(self, chunk: MappedChunk) -> int:
        """Seal a chunk and return how many bytes were read."""
        read = 0
        self._count += 1
        chunk.written = self._count
        with contextlib.suppress(FileNotFoundError):  # it left
            for key in chunk.unsealed():
                changes = chunk.changes
                checksum = chunk.checksum(key)
                read += chunk.arrays[key].nbytes
                with self._values:
                    if chunk.changes == changes:
                        chunk.seal(key, checksum)
        return read
