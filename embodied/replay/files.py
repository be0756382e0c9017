"""Chunk files: `TIME-UUID-SUCCESSOR-LENGTH.npz`, one array per key, never pickled.

Ids in names are 22 base62 characters (digits, then small, then large letters), 0…0 where there
is no successor. Names sort by time. A file appears under its name only when it is complete.
Mapped chunks (see `mapped`) are named `TIME-UUID.chunk`; the rest stands in the file.
"""

import datetime
import os
import pathlib
import re
import string
import threading
import zipfile
from typing import NamedTuple

import numpy as np

from . import mapped

DIGITS = string.digits + string.ascii_letters
NOWHERE = bytes(16)  # the successor of a chunk that has none
PATTERN = re.compile(r'(\d{8}T\d{6}F\d{6})-([0-9a-zA-Z]{22})-([0-9a-zA-Z]{22})-(\d+)\.npz')
MAPPED = re.compile(r'(\d{8}T\d{6}F\d{6})-([0-9a-zA-Z]{22})\.chunk')
OWN = b'embodied'  # the comment of our archives: in others a successor may never have been
_last_time = datetime.datetime.min
_time_lock = threading.Lock()


class Name(NamedTuple):
    """What the name of a chunk file says, or the header of a mapped one."""

    time: str
    uuid: bytes
    successor: bytes
    length: int
    mapped: bool = False

    def __str__(self) -> str:
        if self.mapped:
            return f'{self.time}-{to_base62(self.uuid)}.chunk'
        return (
            f'{self.time}-{to_base62(self.uuid)}-{to_base62(self.successor)}-{self.length}.npz'
        )


def parse(filename: str) -> Name | None:
    """Return what a file name says, or None if it is not the name of a chunk."""
    match = PATTERN.fullmatch(filename)
    if not match:
        return None
    try:
        return Name(match[1], from_base62(match[2]), from_base62(match[3]), int(match[4]))
    except OverflowError:  # 22 characters can say more than 16 bytes hold
        return None


def to_base62(uuid: bytes) -> str:
    number, chars = int.from_bytes(uuid, 'big'), []
    for _ in range(22):
        number, digit = divmod(number, 62)
        chars.append(DIGITS[digit])
    return ''.join(reversed(chars))


def from_base62(text: str) -> bytes:
    number = 0
    for char in text:
        number = number * 62 + DIGITS.index(char)
    return number.to_bytes(16, 'big')


def timestamp() -> str:
    """Return the time in microseconds, later than that of any call before."""
    global _last_time
    with _time_lock:
        now = datetime.datetime.now()
        _last_time = max(now, _last_time + datetime.timedelta(microseconds=1))
        return _last_time.strftime('%Y%m%dT%H%M%SF%f')


def write(
    directory: pathlib.Path, name: Name, arrays: dict[str, np.ndarray], sync: bool = False
) -> None:
    """Write a chunk file aside and rename it; `sync`: wait until the disk has it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / str(name)
    aside = path.with_suffix('.tmp')
    with open(aside, 'wb') as file:
        # The format of np.savez, which itself would stumble over a key named `file`.
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as archive:
            for key, array in arrays.items():
                with archive.open(f'{key}.npy', 'w', force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
            archive.comment = OWN
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(aside, path)


def read(directory: pathlib.Path, name: Name) -> tuple[dict[str, np.ndarray], bool]:
    """Return the arrays of an .npz file without `stepid`, and whether `write` wrote it.

    The ids follow from the name. Raises ValueError for whatever keeps the file from being
    read.
    """
    try:
        with open(directory / str(name), 'rb') as file:  # numpy leaves it open on an error
            archive = np.load(file, allow_pickle=False)
            arrays = {key: archive[key] for key in archive.files if key != 'stepid'}
            own = archive.zip.comment == OWN
    except Exception as error:  # damage shows as almost any of them
        raise ValueError(f'cannot be read ({error})') from error
    if not arrays or any(not x.shape or len(x) != name.length for x in arrays.values()):
        raise ValueError(f'does not hold {name.length} steps of every key')
    return arrays, own


class Scan(NamedTuple):
    """What a folder holds: chunks by time; files that are none or cannot be used, with the
    reason and the steps lost; files to remove."""

    names: list[Name]
    unusable: list[tuple[str, str, str]]
    stale: list[str]


def scan(directory: pathlib.Path) -> Scan:
    """Look through a folder, which may be missing.

    A chunk that grew was written again under a new name; if both are there, the process was
    ended between, and the shorter one is to be removed, as are files not written to the end.
    """
    best: dict[bytes, Name] = {}
    unusable, stale = [], []
    for filename in sorted(os.listdir(directory)) if directory.exists() else []:
        try:
            name = parse(filename) or _parse_mapped(directory, filename)
        except mapped.DamageError as error:
            unusable.append((filename, str(error), error.steps))
            continue
        if name is None:
            stem, suffix = os.path.splitext(filename)
            if suffix in ('.npz', '.chunk'):
                unusable.append((filename, 'has a foreign name', ''))
            elif suffix == '.tmp' and (parse(f'{stem}.npz') or MAPPED.match(f'{stem}.chunk')):
                stale.append(filename)
            continue
        pair = sorted({name, best.get(name.uuid, name)}, key=_progress)
        best[name.uuid] = pair.pop()
        stale += [str(x) for x in pair]
    return Scan(sorted(best.values(), key=str), unusable, stale)


def _parse_mapped(directory: pathlib.Path, filename: str) -> Name | None:
    match = MAPPED.fullmatch(filename)
    if not match:
        return None
    try:
        uuid = from_base62(match[2])
    except OverflowError:
        return None
    header = mapped.read_header(directory / filename)
    return Name(match[1], uuid, header.successor, header.length, True)


def _progress(name: Name) -> tuple[int, bool, bool]:
    return name.length, name.successor != NOWHERE, name.mapped
