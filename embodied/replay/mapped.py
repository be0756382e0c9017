"""Chunks in memory-mapped files `TIME-UUID.chunk`, whose steps outlive the process at once.

A file holds, in this order: 8 bytes that name the format, the length of the header and the
number of filled steps (int64 each), 8 unused bytes, the id of the successor (16 bytes), a JSON
header with size, keys, dtypes, shapes and offsets of the arrays, and the arrays. It has its
full size from the beginning, so that a full disk is an error then and not a crash later.
"""

import collections
import json
import math
import mmap
import os
import pathlib
import threading
from typing import NamedTuple

import numpy as np

from .chunk import Arrays, Chunk, Spec, stepids

MAGIC = b'EMBCHNK1'
PREFIX = 48  # bytes before the header
PAGE = 4096
OPEN_FILES = 256  # each takes a file descriptor, of which a process often has 1024


class DamageError(ValueError):
    """A file cannot be used; `steps` says how many were in it."""

    def __init__(self, message: str, steps: str):
        super().__init__(message)
        self.steps = steps


class Header(NamedTuple):
    """What the beginning of a file says; offsets are those of the arrays, in order of spec."""

    size: int
    spec: Spec
    offsets: list[int]
    length: int
    successor: bytes
    bytes: int  # of the whole file


class MappedChunk(Chunk):
    """A chunk whose arrays are a file, which is mapped while it is in use.

    The kernel writes its pages to the disk in its own time: what was appended survives the
    end of the process in any way, but that of the machine only after `sync`. `nbytes` stays
    0, since the kernel takes the pages back when it needs memory.
    """

    mapped = True

    def __init__(self, path: pathlib.Path, uuid: bytes, time: str, maps: 'Maps'):
        header = read_header(path)
        super().__init__(header.size, header.length, uuid, time)
        self.spec = header.spec
        self.file = path.name
        self.grown = False
        self._path = path
        self._header = header
        self._maps = maps

    @property
    def arrays(self) -> Arrays:  # type: ignore[override]
        """The arrays, valid for as long as they are kept, also when the file is removed."""
        return self._map.arrays

    def filled(self) -> None:
        """Count the reserved steps in the file, now that their values are there."""
        self._map.state[2] = self.length

    def link(self, successor: Chunk) -> None:
        super().link(successor)
        self.grown = False
        self._map.successor[:] = np.frombuffer(successor.uuid, np.uint8)

    def unlink(self) -> None:
        """Take back the link to a chunk that got no step and goes."""
        self._map.successor[:] = 0

    def sync(self) -> None:
        """Wait until the disk has what was written; nobody else waits, as with mmap.flush."""
        with open(self._path, 'r+b') as file:
            os.fsync(file.fileno())

    @property
    def _map(self) -> 'Map':
        return self._maps.get(self._path, self._header, self.uuid)


class Map:
    """One mapped file as arrays. It is unmapped when nothing refers to its arrays."""

    def __init__(self, path: pathlib.Path, header: Header, uuid: bytes):
        with open(path, 'r+b') as file:
            self.buffer = mmap.mmap(file.fileno(), header.bytes)
        self.state = np.frombuffer(self.buffer, np.int64, 3)
        self.successor = np.frombuffer(self.buffer, np.uint8, 16, 32)
        self.arrays = {
            key: np.ndarray((header.size, *shape), dtype, self.buffer, offset)
            for (key, (shape, dtype)), offset in zip(
                header.spec.items(), header.offsets, strict=True
            )
        }
        self.arrays['stepid'] = stepids(uuid, header.size)


class Maps:
    """The files mapped last: to map one again takes some ten microseconds."""

    def __init__(self, limit: int = OPEN_FILES):
        self._limit = limit
        self._recent: collections.OrderedDict[bytes, Map] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: pathlib.Path, header: Header, uuid: bytes) -> Map:
        """Return a map of the file of the chunk `uuid`."""
        with self._lock:
            found = self._recent.get(uuid)
            if found is None:
                found = self._recent[uuid] = Map(path, header, uuid)
                if len(self._recent) > self._limit:
                    self._recent.popitem(last=False)
            else:
                self._recent.move_to_end(uuid)
            return found

    def forget(self, uuid: bytes) -> None:
        """Close the map of a chunk once nobody uses it."""
        with self._lock:
            self._recent.pop(uuid, None)


def create(
    path: pathlib.Path,
    spec: Spec,
    size: int,
    arrays: Arrays | None = None,
    successor: bytes = bytes(16),
) -> None:
    """Write the file of an empty chunk, or of one that is filled with `arrays`, aside first.

    Raises OSError where the disk is full, and leaves nothing behind.
    """
    aside = path.with_suffix('.tmp')
    write(aside, spec, size, arrays, successor)
    os.replace(aside, path)


def write(
    path: pathlib.Path,
    spec: Spec,
    size: int,
    arrays: Arrays | None = None,
    successor: bytes = bytes(16),
) -> None:
    """Write a file as `create` does, but to its place at once."""
    keys = [[key, dtype.str, list(shape)] for key, (shape, dtype) in spec.items()]
    text = json.dumps({'size': size, 'keys': keys}).encode()
    offsets, total = _layout(spec, size, len(text))
    state = np.array([len(text), size if arrays else 0, 0], '<i8')
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, 'wb') as file:
            _reserve(file, total)
            file.write(MAGIC + state.tobytes() + successor + text)
            for key, array in (arrays or {}).items():
                file.seek(offsets[list(spec).index(key)])
                file.write(np.ascontiguousarray(array).data)
    except OSError:  # what was reserved would keep the disk full
        path.unlink(missing_ok=True)
        raise


def count(path: pathlib.Path, index: int) -> None:
    """Let a file hold one more step if it holds `index`; its values are there."""
    with open(path, 'r+b') as file:
        file.seek(16)
        if int.from_bytes(file.read(8), 'little') == index:
            file.seek(16)
            file.write((index + 1).to_bytes(8, 'little'))


def touch(path: pathlib.Path) -> None:
    """Let the kernel fetch the pages of the first steps, which takes longer than to reserve."""
    header = read_header(path)
    with open(path, 'r+b') as file, mmap.mmap(file.fileno(), header.bytes) as buffer:
        for offset in header.offsets:
            if offset < len(buffer):  # an array may have no bytes
                buffer[offset] = 0  # as it is anyway


def read_header(path: pathlib.Path) -> Header:
    """Return the header of a file. Raises DamageError for what is no whole chunk."""
    try:
        with open(path, 'rb') as file:
            prefix = file.read(PREFIX)
            _, bytes_, length, _ = np.frombuffer(prefix[:32], '<i8').tolist()
            content = json.loads(file.read(bytes_) if prefix[:8] == MAGIC else '{}')
            total = os.fstat(file.fileno()).st_size
        spec = {key: (tuple(shape), np.dtype(name)) for key, name, shape in content['keys']}
        offsets, wanted = _layout(spec, content['size'], bytes_)
    except Exception as error:  # damage shows as almost any of them
        raise DamageError(f'cannot be read ({error})', 'an unknown number of steps') from error
    if total != wanted or not 0 <= length <= content['size']:
        raise DamageError(f'has {total} bytes instead of {wanted}', f'{length} steps')
    return Header(content['size'], spec, offsets, length, prefix[32:48], total)


def _layout(spec: Spec, size: int, header: int) -> tuple[list[int], int]:
    """Return the offsets of the arrays, each at the begin of a page, and the file's size."""
    offsets, end = [], PREFIX + header
    for shape, dtype in spec.values():
        offsets.append(-(-end // PAGE) * PAGE)
        end = offsets[-1] + size * math.prod(shape) * dtype.itemsize
    return offsets, end


def _reserve(file, size: int) -> None:
    if hasattr(os, 'posix_fallocate'):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)
