"""Chunks in memory-mapped files (see `mappedfile`), whose steps outlive the process at once."""

import collections
import contextlib
import os
import pathlib
import threading
from collections.abc import Iterable

import numpy as np

from ..core.errors import UserError
from ..core.retries import persistent
from . import checksums, mapping
from .chunk import Arrays, Chunk, stepids
from .mappedfile import Header, read_header

MAPPED_FILES = 256  # each takes a map, of which a process may have some 65,000


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
        self.changes = 0  # how often values were overwritten
        self._path = path
        self._header = header
        self._places = {key: place for place, key in enumerate(header.spec)}
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

    def unseal(self, keys: Iterable[str]) -> None:
        """Say that values of these keys are about to be overwritten."""
        self.changes += 1
        if self._header.checks:
            with contextlib.suppress(FileNotFoundError):  # it left
                checks = self._map.checks
                for key in keys:
                    checks[self._places[key]] = 0

    def unsealed(self) -> list[str]:
        """The keys that have no checksum, of those that can have one."""
        if not self._header.checks or not self.length:
            return []
        missing = self._map.checks == 0
        return [key for key, place in self._places.items() if missing[place]]

    def checksum(self, key: str) -> int:
        """Return the checksum of what is stored under a key."""
        found, offset = self._map, self._header.offsets[self._places[key]]
        count = found.arrays[key][: self.length].nbytes
        return checksums.of(np.frombuffer(found.buffer, np.uint8, count, offset))

    def seal(self, key: str, checksum: int) -> None:
        """Keep a checksum in the file."""
        self._map.checks[self._places[key]] = self.length << 32 | checksum

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
            self.buffer = mapping.of(file.fileno(), header.bytes)
        self.state = np.frombuffer(self.buffer, np.int64, 3)
        self.successor = np.frombuffer(self.buffer, np.uint8, 16, 32)
        count = len(header.spec) if header.checks else 0
        self.checks = np.frombuffer(self.buffer, np.uint64, count, header.checks)
        self.arrays = {
            key: np.ndarray((header.size, *shape), dtype, self.buffer, offset)
            for (key, (shape, dtype)), offset in zip(
                header.spec.items(), header.offsets, strict=True
            )
        }
        self.arrays['stepid'] = stepids(uuid, header.size)


class Maps:
    """The files mapped last: to map one again takes some ten microseconds."""

    def __init__(self, limit: int = MAPPED_FILES):
        self._limit = limit
        self._recent: collections.OrderedDict[bytes, Map] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: pathlib.Path, header: Header, uuid: bytes) -> Map:
        """Return a map of the file of the chunk `uuid`. FileNotFoundError if it is gone."""
        with self._lock:
            found = self._recent.get(uuid)
            if found is None:
                found = self._recent[uuid] = _mapped(path, header, uuid)
                if len(self._recent) > self._limit:
                    self._recent.popitem(last=False)
            else:
                self._recent.move_to_end(uuid)
            return found

    def forget(self, uuid: bytes) -> None:
        """Close the map of a chunk once nobody uses it."""
        with self._lock:
            self._recent.pop(uuid, None)


def _mapped(path: pathlib.Path, header: Header, uuid: bytes) -> Map:
    try:
        return persistent(lambda: Map(path, header, uuid), f'Cannot map {path}')
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(
            f'Cannot map {path} ({error.strerror}), a file of the replay; resume when the disk '
            'can be read again, or with --replay.storage ram.'
        ) from error
