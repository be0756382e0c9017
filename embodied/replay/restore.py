"""Reading a folder of chunk files back into chunks that are linked as they were written."""

import collections
import contextlib
import pathlib
import warnings
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import numpy as np

from . import files, mapped
from .chunk import Arrays, Chunk, MemoryChunk, Spec, spec_of

Convert = Callable[[Arrays], Arrays]
MOST = 2**40  # steps; a chunk that a checkpoint names counts as many


class Skipped(NamedTuple):
    """A file that could not be used, why, and how many steps are lost with it."""

    filename: str
    reason: str
    steps: str


class Found(NamedTuple):
    """What a folder holds.

    chunks: with the number of its first steps that begin no item, the oldest first. stale:
    files of no more use.
    """

    chunks: list[tuple[Chunk, int]]
    stale: list[str]
    skipped: list[Skipped]


class Reader:
    """Reads the files of one folder.

    convert: applied to the arrays of each file. maps: given, chunks become mapped files and
    stay there; else they are read into memory. spec: what a step must look like; if it is
    empty, the chunks that a checkpoint names decide, and without them what most steps have.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        spec: Spec,
        convert: Convert | None,
        maps: mapped.Maps | None,
    ):
        self.directory = directory
        self._spec = spec
        self._convert = convert
        self._maps = maps
        self._present: set[bytes] = set()
        self._empty: set[bytes] = set()  # mapped chunks that will be removed
        self._stale: list[str] = []
        self._skipped: list[Skipped] = []
        self._linked: dict[bytes, files.Name] = {}  # successors that must be there, from whom

    def read(
        self, length: int, room: int | None, known: Set[bytes], named: Set[bytes] = frozenset()
    ) -> Found:
        """Read chunks from the newest back until `room` items (None: all) are there.

        known: ids of chunks that need no reading; named: of those in a checkpoint. A file that is cut, empty or foreign is
        skipped, and a sequence never goes over its gap. Chunks that hold no item and end none
        are left alone.
        """
        names, unusable, self._stale = files.scan(self.directory)
        for filename, reason, steps in unusable:
            self._skip(filename, reason, steps)
        self._present = {*known, *(name.uuid for name in names)}
        self._spec = self._spec or self._usual([x for x in names if x.uuid not in known], named)
        chunks: dict[bytes, tuple[Chunk, int]] = {}
        for name in reversed(names):  # a successor comes after its chunk
            if name.uuid in known:
                continue
            if name.mapped and not name.length:  # the process ended before its first step
                self._stale.append(str(name))
                self._empty.add(name.uuid)
                continue
            if room == 0:
                self._stale.append(str(name))  # older than the capacity reaches
                continue
            try:
                chunk = self._chunk(name)
            except ValueError as error:
                self._skip(str(name), str(error), f'{name.length} steps')
                continue
            chunk.successor = chunks.get(name.successor, (None, 0))[0]
            begins = chunk.available(length)
            kept = begins if room is None else min(room, begins)
            room = None if room is None else room - kept
            chunks[name.uuid] = (chunk, begins - kept)
        self._find_missing([x[0] for x in unusable])
        return Found(_useful(list(chunks.values()), length), self._stale, self._skipped)

    def _skip(self, filename: str, reason: str, steps: str) -> None:
        self._skipped.append(Skipped(filename, reason, steps))

    def _chunk(self, name: files.Name) -> Chunk:
        if name.mapped:
            return self._from_mapped(name)
        arrays, own = files.read(self.directory, name)
        if own and name.successor != files.NOWHERE:
            self._linked[name.successor] = name
        arrays = self._converted(arrays)
        if self._maps is not None:
            self._stale.append(str(name))
            return self._import(name, arrays, self._maps)
        chunk = MemoryChunk(arrays, name.length, name.uuid, name.time)
        chunk.file = str(name)
        chunk.grown = False
        return chunk

    def _from_mapped(self, name: files.Name) -> Chunk:
        """Take a mapped file as it is, unless it must change or belongs into memory."""
        maps = self._maps or mapped.Maps(1)
        chunk = mapped.MappedChunk(self.directory / str(name), name.uuid, name.time, maps)
        if name.successor in self._empty:
            chunk.unlink()
        elif name.successor != files.NOWHERE:
            self._linked[name.successor] = name
        stored = {k: v[: chunk.length] for k, v in chunk.arrays.items() if k != 'stepid'}
        arrays = self._converted(stored)
        if self._maps is None:
            copies = {key: array.copy() for key, array in arrays.items()}
            memory = MemoryChunk(copies, name.length, name.uuid, name.time)
            memory.file = str(name)  # until the next save writes another
            return memory
        if spec_of(arrays) != chunk.spec:
            maps.forget(name.uuid)
            return self._import(name, arrays, maps)
        return chunk

    def _import(self, name: files.Name, arrays: Arrays, maps: mapped.Maps) -> Chunk:
        """Write a mapped file of arrays that came from elsewhere."""
        path = self.directory / str(name._replace(mapped=True))
        successor = name.successor if name.successor in self._present else files.NOWHERE
        mapped.create(path, spec_of(arrays), name.length, arrays, successor)
        return mapped.MappedChunk(path, name.uuid, name.time, maps)

    def _converted(self, arrays: Arrays) -> Arrays:
        if not len(next(iter(arrays.values()))):
            raise ValueError('holds no steps')
        if self._convert is not None:
            arrays = self._convert(arrays)
        if spec_of(arrays) != self._spec:
            raise ValueError('stores other keys, shapes or dtypes than most of the replay')
        return arrays

    def _usual(self, names: list[files.Name], named: Set[bytes]) -> Spec:
        """Return what the steps of chunks in `named` look like once converted, or most do."""
        specs: dict[Any, Spec] = {}  # by what is in the files
        votes: collections.Counter[int] = collections.Counter()
        for name in names:
            with contextlib.suppress(Exception):  # reading it will say what is wrong
                found = files.read_spec(self.directory, name)
                key = tuple(
                    (k, shape, str(dtype)) for k, (shape, dtype) in sorted(found.items())
                )
                if key not in specs:
                    one = {k: np.zeros((1, *shape), x) for k, (shape, x) in found.items()}
                    specs[key] = spec_of(self._convert(one) if self._convert else one)
                place = list(specs.values()).index(specs[key])
                votes[place] += name.length
                votes[place] += MOST * (name.uuid in named)
        return list(specs.values())[votes.most_common(1)[0][0]] if votes else {}

    def _find_missing(self, unusable: list[str]) -> None:
        """Note successors of our own chunks that are not there; others may never have been."""
        for uuid, before in self._linked.items():
            text = files.to_base62(uuid)
            if uuid not in self._present and not any(text in filename for filename in unusable):
                reason = f'is missing, in which {before} goes on'
                self._skip(text, reason, f'up to {before.length} steps')  # as many as before


def warn(directory: pathlib.Path, skipped: list[Skipped]) -> None:
    """Give one warning for each file that could not be used."""
    for filename, reason, steps in skipped:
        lost = f' ({steps} lost)' if steps else ''
        warnings.warn(
            f'Replay file {filename} in {directory} skipped: it {reason}{lost}.', stacklevel=4
        )


def _useful(found: list[tuple[Chunk, int]], length: int) -> list[tuple[Chunk, int]]:
    """Return the chunks that begin an item or hold steps of one, the oldest first."""
    used: set[bytes] = set()
    for chunk, skip in found:
        begins = chunk.available(length)
        if begins > skip:
            parts = chunk.parts(begins - 1, length)
            used |= {chunk.uuid, *(part.uuid for part, _, _ in parts)}
    return [(chunk, skip) for chunk, skip in reversed(found) if chunk.uuid in used]
