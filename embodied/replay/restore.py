"""Reading a folder of chunk files back into chunks that are linked as they were written."""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import numpy as np

from . import files, mapped, mappedfile
from .chunk import Arrays, Chunk, MemoryChunk, Spec, spec_of

Convert = Callable[[Arrays], Arrays]
MOST = 2**40  # steps; a chunk that a checkpoint names counts as many
MOST_THREADS = 8  # that read files at the same time


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

        known: ids of chunks that need no reading; named: of those in a checkpoint. A file
        that is cut, altered, empty or foreign is skipped, and a sequence never goes over its
        gap. Chunks that hold no item and end none are left alone.
        """
        names, unusable, self._stale = files.scan(self.directory)
        for filename, reason, steps in unusable:
            self._skip(filename, reason, steps)
        self._present = {*known, *(name.uuid for name in names)}
        # The process ended before their first step.
        self._empty = {x.uuid for x in names if x.mapped and not x.length} - {*known}
        self._stale += [str(name) for name in names if name.uuid in self._empty]
        todo = [x for x in names if x.uuid not in {*known, *self._empty}][::-1]
        self._spec = self._spec or self._usual(todo, named)
        chunks: dict[bytes, tuple[Chunk, int]] = {}
        used = 0
        for name, check in _checked(self.directory, todo):  # a successor before its chunk
            if room == 0:
                break
            used += 1
            try:
                check.result()
                chunk = self._chunk(name)
            except ValueError as error:
                self._skip(str(name), str(error), f'{name.length} steps')
                continue
            chunk.successor = chunks.get(name.successor, (None, 0))[0]
            begins = chunk.available(length)
            kept = begins if room is None else min(room, begins)
            room = None if room is None else room - kept
            chunks[name.uuid] = (chunk, begins - kept)
        # What is older than the capacity reaches.
        self._stale += [str(name) for name in todo[used:]]
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
        mappedfile.create(path, spec_of(arrays), name.length, arrays, successor)
        return mapped.MappedChunk(path, name.uuid, name.time, maps)

    def _converted(self, arrays: Arrays) -> Arrays:
        if not len(next(iter(arrays.values()))):
            raise ValueError('holds no steps')
        if self._convert is not None:
            try:
                arrays = self._convert(arrays)
            except Exception as error:  # made for what this replay stores
                raise ValueError(f'cannot be converted ({error!r})') from error
        self._spec = self._spec or spec_of(arrays)
        if spec_of(arrays) != self._spec:
            raise ValueError('stores other keys, shapes or dtypes than most of the replay')
        return arrays

    def _usual(self, names: list[files.Name], named: Set[bytes]) -> Spec:
        """Return what steps look like, once converted: in chunks of `named`, or in most."""
        specs: list[Spec] = []
        votes: collections.Counter[int] = collections.Counter()
        for name in names:
            with contextlib.suppress(Exception):  # reading it will say what is wrong
                found = files.read_spec(self.directory, name)
                one = {key: np.zeros((1, *shape), x) for key, (shape, x) in found.items()}
                spec = spec_of(self._convert(one) if self._convert else one)
                if spec not in specs:
                    specs.append(spec)
                votes[specs.index(spec)] += MOST if name.uuid in named else name.length
        return specs[votes.most_common(1)[0][0]] if votes else {}

    def _find_missing(self, unusable: list[str]) -> None:
        """Note successors of our own chunks that are not there; others may never have been."""
        for uuid, before in self._linked.items():
            text = files.to_base62(uuid)
            if uuid not in self._present and not any(text in filename for filename in unusable):
                reason = f'is missing, in which {before} goes on'
                self._skip(text, reason, f'up to {before.length} steps')  # as many as before


def _checked(
    directory: pathlib.Path, names: list[files.Name]
) -> Iterator[tuple[files.Name, concurrent.futures.Future]]:
    """Yield names with the check of their files, a few of which run ahead in threads.

    The result of a check is None, or it raises ValueError.
    """
    ahead: collections.deque[tuple[files.Name, concurrent.futures.Future]] = collections.deque()
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for name in names:
            ahead.append((name, pool.submit(_check, directory, name)))
            if len(ahead) > 2 * threads:
                yield ahead.popleft()
        yield from ahead


def _check(directory: pathlib.Path, name: files.Name) -> None:
    if name.mapped:  # the format of others has checksums of its own
        mappedfile.check(directory / str(name))


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
