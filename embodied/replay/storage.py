"""Storage: the chunks of a replay, in memory or in mapped files, and their files.

A position is one integer for one stored step: the number of its chunk and its index there.
"""

import contextlib
import itertools
import pathlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from ..core.errors import UserError, reason
from . import blocks, files, journal, mapped, restore, windows
from .blocks import Block, Blocks
from .chunk import Arrays, Chunk, MemoryChunk, Span, Spec, gather
from .seals import Seals
from .spares import Spares

REFRESH_BYTES = 2**30  # of files that one save writes again only because values changed
COPY_BYTES = 2**22  # that a save copies at a time, while sampling waits
Run = tuple[Chunk, Arrays, int, int, int]  # chunk, its arrays, start, start in update, count


class Storage:
    """Chunks by number and by id.

    disk: chunks are mapped files in the directory; what is appended or overwritten is there
    at once, and files of chunks that leave are removed at once. Else they are in memory and
    `save` writes them.

    Two locks, taken in this order: `lock`, given by the replay and held for a short time, for
    which chunks there are and how they are linked; `_values` for the stored values, held
    while they are copied. Methods without locks of their own are called under `lock`.
    """

    def __init__(
        self, name: str, chunksize: int, directory: Any, sync: bool, lock: Any, disk: bool
    ):
        self.name = name
        self.directory = None if directory is None else pathlib.Path(str(directory)).absolute()
        self.spec: Spec = {}  # of what is added; empty before the first step
        self._chunksize = chunksize
        self._sync = sync
        self.disk = disk
        self._maps = mapped.Maps() if disk else None
        self._spares: Spares | None = None
        if disk and self.directory is not None:
            self._spares = Spares(name, self.directory, chunksize)
        self._journal: journal.Journal | None = None  # opened by the first request
        self._unnoted = False  # the directory takes none
        self._blocks = Blocks(chunksize)
        self._rows: list[tuple[Block, int]] = []  # for the next chunks, the last one first
        self._clock: files.Clock | None = None
        self._lock = lock
        self._values = threading.Lock()
        self._seals = Seals(self._values)
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
        """Bytes in memory of all chunks, filled or not."""
        return sum(chunk.nbytes for chunk in self._chunks.values())

    def check(self, step: Mapping[str, np.ndarray], lead: tuple = ()) -> None:
        """Raise a UserError unless steps look like those before; the first one decides.

        lead: the axes in front of those of a step.
        """
        if not self.spec:
            self.spec = {k: (v.shape[len(lead) :], v.dtype) for k, v in step.items()}
        if step.keys() != self.spec.keys():
            raise UserError(
                f'Replay {self.name!r} stores the keys {sorted(self.spec)}, but a step '
                f'has {sorted(step)}; another logdir starts a new replay.'
            )
        for key, (shape, dtype) in self.spec.items():
            value = step[key]
            if value.shape != (*lead, *shape) or value.dtype != dtype:
                raise UserError(
                    f'Replay {self.name!r} stores {key!r} as {dtype} {shape}, but a step '
                    f'has {value.dtype} {value.shape[len(lead) :]}; another logdir starts a '
                    f'new replay.'
                )

    def prepare(self, count: int) -> None:
        """Make what the next `count` chunks need of the disk; see `Spares`. Without `lock`."""
        if self._spares is not None:
            self._spares.prepare(self.spec, count)

    def chunks_for(self, steps: int) -> int:
        """Return how many new chunks hold so many steps."""
        return max(0, -(-steps // self._chunksize))

    def share(self, count: int) -> None:
        """Let the next `count` chunks in memory lie in one block, in their order."""
        block = self._block(count)
        self._rows = [(block, row) for row in reversed(range(count))]

    def allocate(self, before: Chunk | None) -> Chunk:
        """Return a new open chunk, in which the worker of the chunk `before` goes on."""
        if self._clock is None:  # not before: others may have written to the folder
            self._clock = files.Clock(self.directory)
        ident, time = uuid.uuid4().bytes, self._clock()
        chunk: Chunk
        if self._maps is None or self._spares is None or self.directory is None:
            block, row = self._rows.pop() if self._rows else (self._block(1), 0)
            chunk = MemoryChunk(block.row(row), 0, ident, time)
            chunk.place = block, row
        else:
            path = self.directory / str(files.Name(time, ident, files.NOWHERE, 0, True))
            self._spares.place(path, self.spec)
            chunk = mapped.MappedChunk(path, ident, time, self._maps)
        chunk.open = True
        self.register(chunk)
        if before is not None:
            before.link(chunk)
            self._seals.add(before)
            self._release(before)
        return chunk

    def has(self, request: journal.Request) -> bool:
        """Whether the steps of a request were written. False without a directory."""
        opened = self._opened_journal()
        return opened is not None and opened.has(request)

    def write(
        self,
        places: list[tuple[Chunk, int]],
        steps: Mapping[str, np.ndarray],
        request: journal.Request | None = None,
    ) -> None:
        """Write steps (n, …) of a request to n places; `settle` it once they count."""
        opened = self._opened_journal() if request else None
        if opened and request and not self.disk:
            opened.note(request)  # what was inserted and not saved is lost with the memory
        blocks.write(places, steps)
        if opened and request and self._spares:
            with self._spares.checked():
                opened.commit(request, places)

    def settle(self, request: journal.Request | None) -> None:
        """Say that the steps of a request count."""
        if request and self.disk and self._journal:
            self._journal.settle()

    def _opened_journal(self) -> journal.Journal | None:
        if self._journal is None and self.directory is not None and not self._unnoted:
            try:
                with self._spares.checked() if self._spares else contextlib.nullcontext():
                    self._journal = journal.Journal(self.directory)
            except OSError as error:  # with files a UserError: they keep what others rely on
                self._unnoted = True
                print(
                    f'Warning: {self.directory} takes no list of requests ({reason(error)}); '
                    'what is sent again after a kill may be stored twice.',
                    flush=True,
                )
        return self._journal

    def _block(self, rows: int) -> Block:
        open_ = sum(chunk.open for chunk in self._chunks.values())
        self._blocks.limit = max(self._blocks.limit, open_)
        return self._blocks.take(self.spec, rows)

    def register(self, chunk: Chunk) -> None:
        """Take in a chunk."""
        self.spec = self.spec or chunk.spec
        chunk.number = next(self._numbers)
        self._chunks[chunk.number] = chunk
        self._by_uuid[chunk.uuid] = chunk

    def unref(self, position: int) -> None:
        """Say that no item begins at a position any more."""
        chunk = self._chunks[position >> 32]
        chunk.refs -= 1
        self._release(chunk)

    def span(self, position: int, length: int) -> Span:
        """Return where `length` steps from a position on lie; that stays so when they leave."""
        chunk, index = self._chunks[position >> 32], position & 0xFFFFFFFF
        if index + length <= chunk.length:
            return [(chunk.arrays, index, index + length)]
        return [(part.arrays, start, stop) for part, start, stop in chunk.parts(index, length)]

    def stepids(self, position: int, length: int) -> np.ndarray:
        """Return the ids of `length` steps from a position on: uint8 (length, 20)."""
        ids = [
            arrays['stepid'][start:stop] for arrays, start, stop in self.span(position, length)
        ]
        return ids[0] if len(ids) == 1 else np.concatenate(ids)

    def runs(self, ids: np.ndarray) -> Iterator[Run]:
        """Yield runs of consecutive steps in stepids (n, 20), leaving out unknown steps."""
        for ident, start, place, count in windows.runs(ids):
            chunk = self._by_uuid.get(ident)
            if chunk is not None and start < chunk.length:
                yield chunk, chunk.arrays, start, place, min(count, chunk.length - start)

    def read(self, spans: list[Span], length: int) -> dict[str, np.ndarray]:
        """Copy spans of `length` steps into new arrays (spans, length, …). Without `lock`."""
        with self._values:
            return gather(spans, length)

    def overwrite(self, runs: list[Run], values: Mapping[str, np.ndarray]) -> None:
        """Overwrite the steps of `runs` by those of values (n, …). Without `lock`."""
        with self._values:
            for chunk, arrays, start, place, count in runs:
                chunk.unseal(values)
                for key, value in values.items():
                    arrays[key][start : start + count] = value[place : place + count]
                chunk.updated = True

    def collect(self) -> None:
        """Remove files of mapped chunks that have left, seal one more. Without `lock`."""
        if self._maps is not None and self._garbage:
            self._clean()
        self._seals.seal_next(self._lock)

    def save(self) -> None:
        """Write what is new and remove files of chunks that have left. Without `lock`."""
        directory = self.directory
        if directory is None:
            return
        with self._saving:
            if self._maps is not None:
                with self._lock:
                    complete = [chunk for chunk in self._chunks.values() if not chunk.open]
                self._seals.refresh(complete, REFRESH_BYTES)
            for chunk in self._to_write():
                if isinstance(chunk, mapped.MappedChunk):
                    with contextlib.suppress(FileNotFoundError):  # it left
                        chunk.sync()
                else:
                    self._write(chunk, directory)
            self._clean()

    def load(
        self,
        length: int,
        room: int | None,
        convert: restore.Convert | None,
        named: Set[bytes] = frozenset(),
    ) -> list[tuple[Chunk, int]]:
        """Read chunks that are not there yet; see `restore.Reader`. Without `lock`.

        They are returned for the caller to register. named: chunks that a checkpoint names.
        """
        if self.directory is None:
            return []
        with self._saving:
            with self._lock:
                checked = (
                    self._spares.checked() if self._spares else contextlib.suppress(OSError)
                )
                with checked:
                    if self._journal is None:
                        journal.recover(self.directory)
                known, spec = set(self._by_uuid), self.spec
            reader = restore.Reader(self.directory, spec, convert, self._maps)
            # Files of other formats become mapped ones.
            with self._spares.checked() if self._spares else contextlib.nullcontext():
                found = reader.read(length, room, known, named)
            with self._lock:
                self._garbage += found.stale
        restore.warn(self.directory, found.skipped)
        return found.chunks

    def _clean(self) -> None:
        with self._lock:
            garbage, self._garbage = self._garbage, []
        for filename in garbage:
            try:
                pathlib.Path(self.directory or '', filename).unlink(missing_ok=True)
            except OSError as error:  # the next load will try again
                print(f'Warning: cannot remove {filename} from {self.directory}: {error}')

    def _release(self, chunk: Chunk | None) -> None:
        """Forget a chunk that no item and no worker needs, and those after it."""
        while chunk is not None and not chunk.refs and not chunk.open:
            if self._chunks.pop(chunk.number, None):
                del self._by_uuid[chunk.uuid]
                if self._maps is not None:
                    self._maps.forget(chunk.uuid)
                self._garbage += [chunk.file] if chunk.file else []
            # A loaded chunk may begin no item and be there only for those before it.
            chunk = chunk.successor

    def _to_write(self) -> list[Chunk]:
        """Return chunks that grew, and those that changed, the longest unwritten first.

        Of those that grew the newest come first, so that no file names a successor that would
        be missing if the process ended here. Mapped chunks only need to be synced, if at all.
        """
        with self._lock:
            chunks = list(self._chunks.values())
        if self._maps is not None:
            return chunks if self._sync else []
        chosen, budget = [chunk for chunk in reversed(chunks) if chunk.grown], REFRESH_BYTES
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
            # One that came since the save began is named by the next save, which writes it.
            after = chunk.successor
            successor = after.uuid if after and after.file else files.NOWHERE
            name = files.Name(chunk.time, chunk.uuid, successor, chunk.length)
            chunk.grown = after is not None and not after.file
        chunk.updated = False  # before it is copied: what changes meanwhile is written again
        arrays = self._copy(chunk, name.length)
        try:
            files.write(directory, name, arrays, self._sync)
        except OSError:  # the disk is full; a later save may find room
            chunk.grown = True
            raise
        chunk.written = next(self._writes)
        with self._lock:
            if chunk.file != str(name):
                self._garbage += [chunk.file] if chunk.file else []
                chunk.file = str(name)
            if chunk.number not in self._chunks:  # it left while it was written
                self._garbage.append(str(name))

    def _copy(self, chunk: Chunk, length: int) -> Arrays:
        """Copy filled steps, a few at a time: each of them whole, and nobody waits for long."""
        arrays = chunk.arrays
        copies = {key: np.empty((length, *x.shape[1:]), x.dtype) for key, x in arrays.items()}
        stride = max(1, COPY_BYTES * chunk.size // max(1, chunk.nbytes))
        for start in range(0, length, stride):
            part = slice(start, min(length, start + stride))
            with self._values:
                for key, copy in copies.items():
                    copy[part] = arrays[key][part]
        return copies
