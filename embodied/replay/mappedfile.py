"""The files of mapped chunks, `TIME-UUID.chunk`.

A file holds, in this order: 8 bytes that name the format, the length of the header and the
number of filled steps (int64 each), 8 unused bytes, the id of the successor (16 bytes), a JSON
header with size, keys, dtypes and shapes of the arrays, the checksums, and the arrays, each
from the begin of a page on. It has its full size from the beginning, so that a full disk is an
error then and not a crash later.

A checksum is that of the filled steps of one array, once nothing is appended any more, until
values are overwritten: the checksum and the number of steps (4 bytes each), or zeros where
there is none. Files of earlier versions have no room for them.
"""

import json
import math
import mmap
import os
import pathlib
from typing import NamedTuple

import numpy as np

from . import checksums
from .chunk import Arrays, Spec

MAGIC = b'EMBCHNK1'
PREFIX = 48  # bytes before the header
PAGE = 4096


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
    checks: int  # where the checksums begin, 0 if there are none

    def extents(self) -> list[tuple[int, int]]:
        """Where the filled steps of each array are in the file: offset, bytes."""
        steps = [math.prod(shape) * dtype.itemsize for shape, dtype in self.spec.values()]
        return [(x, self.length * n) for x, n in zip(self.offsets, steps, strict=True)]


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
    text = json.dumps({'size': size, 'keys': keys, 'checks': True}).encode()
    _, offsets, total = _layout(spec, size, len(text), True)
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


def check(path: pathlib.Path) -> None:
    """Compare what is stored with the checksums that there are. Raises ValueError."""
    header = read_header(path)
    if not header.checks:
        return
    try:
        with open(path, 'rb') as file:
            file.seek(header.checks)
            found = np.frombuffer(file.read(8 * len(header.spec)), '<u8')
        known = np.flatnonzero(found).tolist()
        keys, extents = list(header.spec), header.extents()
        actual = checksums.of_file(path, [extents[i] for i in known])
    except OSError as error:
        raise DamageError(
            f'cannot be read ({error.strerror})', _steps(header.length)
        ) from error
    for place, value in zip(known, actual, strict=True):
        if int(found[place]) != header.length << 32 | value:
            raise DamageError(
                f'was altered: {keys[place]!r} does not match its checksum',
                _steps(header.length),
            )


def read_header(path: pathlib.Path) -> Header:
    """Return the header of a file. Raises DamageError for what is no whole chunk."""
    unknown = 'an unknown number of steps'
    try:
        with open(path, 'rb') as file:
            prefix = file.read(PREFIX)
            if len(prefix) < PREFIX or prefix[:8] != MAGIC:
                raise DamageError('does not begin as a chunk of this package', unknown)
            _, bytes_, length, _ = np.frombuffer(prefix[:32], '<i8').tolist()
            content = json.loads(file.read(bytes_))
            total = os.fstat(file.fileno()).st_size
        spec = {key: (tuple(shape), np.dtype(name)) for key, name, shape in content['keys']}
        size, has_checks = content['size'], bool(content.get('checks'))
        checks, offsets, wanted = _layout(spec, size, bytes_, has_checks)
        fits = 0 <= length <= size
    except DamageError:
        raise
    except OSError as error:
        raise DamageError(f'cannot be read ({error.strerror})', unknown) from error
    except Exception as error:  # damage shows as almost any of them
        raise DamageError('has a damaged header', unknown) from error
    if total != wanted:
        raise DamageError(f'has {total} bytes instead of {wanted}', _steps(length))
    if not fits:
        raise DamageError(f'counts {length} steps, but has room for {size}', unknown)
    return Header(size, spec, offsets, length, prefix[32:48], total, checks)


def _steps(length: int) -> str:
    return f'{length} steps'


def _layout(spec: Spec, size: int, header: int, checks: bool) -> tuple[int, list[int], int]:
    """Return where checksums begin (0: none), the offsets of the arrays, and the size."""
    end = PREFIX + header
    begin = -(-end // 8) * 8 if checks else 0
    end = begin + 8 * len(spec) if checks else end
    offsets = []
    for shape, dtype in spec.values():
        offsets.append(-(-end // PAGE) * PAGE)
        end = offsets[-1] + size * math.prod(shape) * dtype.itemsize
    return begin, offsets, end


def _reserve(file, size: int) -> None:
    if hasattr(os, 'posix_fallocate'):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)
