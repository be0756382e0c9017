"""Chunk files: `TIME-UUID-SUCCESSOR-LENGTH.npz`, one array per key, never pickled.

Ids in names are 22 base62 characters (digits, then small, then large letters), 0…0 where there
is no successor. Names sort by time, which is UTC (local time in files of earlier versions and
of the reference), and go on after the newest of the folder. A file appears under its name only
when it is complete.
Mapped chunks (see `mappedfile`) are named `TIME-UUID.chunk`; the rest stands in the file.
"""

import os
import pathlib
import re
import string
import zipfile
from typing import NamedTuple

import numpy as np

from ..core import stamps
from . import mappedfile
from .chunk import Spec

DIGITS = string.digits + string.ascii_letters
NOWHERE = bytes(16)  # the successor of a chunk that has none
PATTERN = re.compile(r'(\d{8}T\d{6}F\d{6})-([0-9a-zA-Z]{22})-([0-9a-zA-Z]{22})-(\d+)\.npz')
MAPPED = re.compile(r'(\d{8}T\d{6}F\d{6})-([0-9a-zA-Z]{22})\.chunk')
OWN = b'embodied'  # the comment of our archives: in others a successor may never have been


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


class Clock:
    """Times for names in a directory, each later than all that are there."""

    def __init__(self, directory: pathlib.Path | None):
        there = os.listdir(directory) if directory and directory.exists() else []
        found = [PATTERN.fullmatch(x) or MAPPED.fullmatch(x) for x in there]
        self._last = max((x[1] for x in found if x and stamps.parse(x[1])), default='')

    def __call__(self) -> str:
        self._last = stamps.after(self._last)
        return self._last


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


def read_spec(directory: pathlib.Path, name: Name) -> Spec:
    """Return keys, shapes and dtypes of a chunk file from its headers. Raises ValueError."""
    if name.mapped:
        return mappedfile.read_header(directory / str(name)).spec
    spec: Spec = {}
    try:
        with zipfile.ZipFile(directory / str(name)) as archive:
            for filename in archive.namelist():
                with archive.open(filename) as file:
                    version = np.lib.format.read_magic(file)
                    read = getattr(np.lib.format, f'read_array_header_{version[0]}_0')
                    shape, _, dtype = read(file)
                spec[filename.removesuffix('.npy')] = shape[1:], dtype
    except Exception as error:  # damage shows as almost any of them
        raise ValueError(f'cannot be read ({error})') from error
    return {key: value for key, value in spec.items() if key != 'stepid'}


class Scan(NamedTuple):
    """What a folder holds: chunks by age; files that are none or cannot be used, with the
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
        except mappedfile.DamageError as error:
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
    return Scan(_by_age(best), unusable, stale)


def _by_age(names: dict[bytes, Name]) -> list[Name]:
    """Return chunks with the oldest first, and each after those before it in its stream.

    Where the clock was set back while names were in local time, their order is another.
    """
    places: dict[bytes, tuple[str, int]] = {}
    followers = {name.successor for name in names.values()}
    for head in names.values():
        name, time = None if head.uuid in followers else head, ''
        while name is not None and name.uuid not in places:
            time = max(time, name.time)
            places[name.uuid] = time, len(places)
            name = names.get(name.successor)
    key = lambda x: (*places.get(x.uuid, (x.time, 0)), str(x))
    return sorted(names.values(), key=key)


def _parse_mapped(directory: pathlib.Path, filename: str) -> Name | None:
    match = MAPPED.fullmatch(filename)
    if not match:
        return None
    try:
        uuid = from_base62(match[2])
    except OverflowError:
        return None
    header = mappedfile.read_header(directory / filename)
    return Name(match[1], uuid, header.successor, header.length, True)


def _progress(name: Name) -> tuple[int, bool, bool]:
    return name.length, name.successor != NOWHERE, name.mapped
