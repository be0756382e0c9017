"""Storage: the chunks of a replay, in memory, and their files.

A position is one integer for one stored step: the number of its chunk and its index there.
"""

import itertools
import pathlib
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import files, restore
from .chunk import Chunk, Span, Spec, gather, spec_of

REFRESH_BYTES = 2**30  # of files that one save writes again only because values changed
Run = tuple[Chunk, int, int, int]  # chunk, start in it, start in an update, count


class Storage:
    """Chunks by number and by id.

    Two locks, taken in this order: `lock`, given by the replay and held for a short time, for
    which chunks there are and how they are linked; `_values` for the stored values, held
    while they are copied. Methods without locks of their own are called under `lock`.
    """

    def __init__(self, name: str, chunksize: int, directory: Any, sync: bool, lock: Any):
        self.name = name
        self.directory = None if directory is None else pathlib.Path(str(directory))
        self.spec: Spec = {}  # of what is added; empty before the first step
        self._chunksize = chunksize
        self._sync = sync
        self._lock = lock
        self._values = threading.Lock()
        self._saving = threading.Lock()
        self._chunks: dict[int, Chunk] = {}
        self._by_uuid: dict[bytes, Chunk] = {}
        self._numbers = itertools.count()
        self._writes = itertools.count(1)
        self._garbage: list[str] = []  # files that the next save removes

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self._chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks, filled or not."""
        return sum(chunk.nbytes for chunk in self._chunks.values())

    def check(self, step: Mapping[str, np.ndarray], worker: Hashable) -> None:
        """Raise a UserError unless a step looks like those before; the first one decides."""
        if not self.spec:
            self.spec = {key: (value.shape, value.dtype) for key, value in step.items()}
        if step.keys() != self.spec.keys():
            raise UserError(
                f'Replay {self.name!r} stores the keys {sorted(self.spec)}, but worker '
                f'{worker} adds {sorted(step)}; another logdir starts a new replay.'
            )
        for key, (shape, dtype) in self.spec.items():
            value = step[key]
            if value.shape != shape or value.dtype != dtype:
                raise UserError(
                    f'Replay {self.name!r} stores {key!r} as {dtype} {shape}, but worker '
                    f'{worker} adds {value.dtype} {value.shape}; another logdir starts a '
                    f'new replay.'
                )

    def allocate(self, before: Chunk | None) -> Chunk:
        """Return a new open chunk, in which the worker of the chunk `before` goes on."""
        chunk = Chunk.allocate(
            self.spec, self._chunksize, uuid.uuid4().bytes, files.timestamp()
        )
        chunk.open = True
        self.register(chunk)
        if before is not None:
            before.successor = chunk
            before.grown = True
            before.open = False
            self._release(before)
        return chunk

    def register(self, chunk: Chunk) -> None:
        """Take in a chunk."""
        if not self.spec:
            self.spec = {k: v for k, v in spec_of(chunk.arrays).items() if k != 'stepid'}
        chunk.number = next(self._numbers)
        self._chunks[chunk.number] = chunk
        self._by_uuid[chunk.uuid] = chunk

    def unref(self, position: int) -> None:
        """Say that no item begins at a position any more."""
        chunk = self._chunks[position >> 32]
        chunk.refs -= 1
        self._release(chunk)

    def span(self, position: int, length: int) -> Span:
        """Return where `length` steps from a position on lie."""
        return self._chunks[position >> 32].span(position & 0xFFFFFFFF, length)

    def runs(self, ids: np.ndarray) -> Iterator[Run]:
        """Yield runs of consecutive steps in stepids (n, 20), leaving out unknown steps."""
        index = ids[:, 16:].copy().view('>u4')[:, 0].astype(np.int64)
        breaks = (ids[1:, :16] != ids[:-1, :16]).any(1) | (index[1:] != index[:-1] + 1)
        edges = [0, *(np.nonzero(breaks)[0] + 1).tolist(), len(ids)]
        for place, end in itertools.pairwise(edges if len(ids) else []):
            chunk, start = self._by_uuid.get(ids[place, :16].tobytes()), int(index[place])
            if chunk is not None and start < chunk.length:
                yield chunk, start, place, min(end - place, chunk.length - start)

    def read(self, spans: list[Span], length: int) -> dict[str, np.ndarray]:
        """Copy spans of `length` steps into new arrays (spans, length, …). Without `lock`."""
        with self._values:
            return gather(spans, length)

    def overwrite(self, runs: list[Run], values: Mapping[str, np.ndarray]) -> None:
        """Overwrite the steps of `runs` by those of values (n, …). Without `lock`."""
        with self._values:
            for chunk, start, place, count in runs:
                for key, value in values.items():
                    chunk.arrays[key][start : start + count] = value[place : place + count]
                chunk.updated = True

    def save(self) -> None:
        """Write what is new and remove files of chunks that have left. Without `lock`."""
        directory = self.directory
        if directory is None:
            return
        with self._saving:
            for chunk in self._to_write():
                self._write(chunk, directory)
            with self._lock:
                garbage, self._garbage = self._garbage, []
            for filename in garbage:
                (directory / filename).unlink(missing_ok=True)

    def load(
        self, length: int, room: int | None, convert: Callable[[dict], dict] | None
    ) -> list[tuple[Chunk, int]]:
        """Read chunks that are not there yet; see `restore.read`. Without `lock`.

        They are returned for the caller to register.
        """
        if self.directory is None:
            return []
        with self._saving:
            with self._lock:
                known, spec = set(self._by_uuid), self.spec
            found = restore.read(self.directory, length, room, known, spec, convert)
            with self._lock:
                self._garbage += found.stale
        restore.warn(self.directory, found.skipped)
        return found.chunks

    def _release(self, chunk: Chunk | None) -> None:
        """Forget a chunk that no item and no worker needs, and those after it."""
        while chunk is not None and not chunk.refs and not chunk.open:
            if self._chunks.pop(chunk.number, None):
                del self._by_uuid[chunk.uuid]
                self._garbage += [chunk.file] if chunk.file else []
            # A loaded chunk may begin no item and be there only for those before it.
            chunk = chunk.successor

    def _to_write(self) -> list[Chunk]:
        """Return chunks that grew, and those that changed, the longest unwritten first."""
        with self._lock:
            chunks = list(self._chunks.values())
        chosen, budget = [chunk for chunk in chunks if chunk.grown], REFRESH_BYTES
        changed = [chunk for chunk in chunks if chunk.updated and not chunk.grown]
        for chunk in sorted(changed, key=lambda chunk: chunk.written):
            if budget <= 0:
                break
            budget -= chunk.nbytes
            chosen.append(chunk)
        return chosen

    def _write(self, chunk: Chunk, directory: pathlib.Path) -> None:
        """Write one chunk, from a copy made under the locks."""
        with self._lock:
            successor = chunk.successor.uuid if chunk.successor else files.NOWHERE
            name = files.Name(chunk.time, chunk.uuid, successor, chunk.length)
            chunk.grown = False
        with self._values:
            arrays = {key: array[: name.length].copy() for key, array in chunk.arrays.items()}
            chunk.updated = False
        files.write(directory, name, arrays, self._sync)
        chunk.written = next(self._writes)
        with self._lock:
            if chunk.file != str(name):
                self._garbage += [chunk.file] if chunk.file else []
                chunk.file = str(name)
            if chunk.number not in self._chunks:  # it left while it was written
                self._garbage.append(str(name))
