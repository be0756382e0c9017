"""Reading a folder of chunk files back into chunks that are linked as they were written."""

import pathlib
import warnings
from collections.abc import Callable, Set
from typing import NamedTuple

from . import files
from .chunk import Chunk, Spec, spec_of


class Found(NamedTuple):
    """What a folder holds.

    chunks: with the number of its first steps that begin no item, the oldest first. stale:
    files of no more use. skipped: why files could not be used.
    """

    chunks: list[tuple[Chunk, int]]
    stale: list[str]
    skipped: list[str]


def read(
    directory: pathlib.Path,
    length: int,
    room: int | None,
    known: Set[bytes],
    spec: Spec,
    convert: Callable[[dict], dict] | None,
) -> Found:
    """Read chunks from the newest back until `room` items (None: all) are there.

    known: ids of chunks that need no reading. spec: what a step must look like; empty takes it
    from the newest file. A file that is cut, empty or foreign is skipped, and a sequence never
    goes over its gap. Chunks that hold no item and end none are left alone.
    """
    names, foreign, stale = files.scan(directory)
    skipped = [f'{filename} has a foreign name' for filename in foreign]
    chunks: dict[bytes, tuple[Chunk, int]] = {}
    for name in reversed(names):  # a successor is newer than its chunk
        if name.uuid in known:
            continue
        if room == 0:
            stale.append(str(name))  # older than the capacity reaches
            continue
        try:
            chunk = _chunk(directory, name, spec, convert)
        except ValueError as error:
            skipped.append(f'{name} {error}')
            continue
        spec = spec or {k: v for k, v in spec_of(chunk.arrays).items() if k != 'stepid'}
        chunk.successor = chunks.get(name.successor, (None, 0))[0]
        begins = chunk.available(length)
        kept = begins if room is None else min(room, begins)
        room = None if room is None else room - kept
        chunks[name.uuid] = (chunk, begins - kept)
    return Found(_useful(list(chunks.values()), length), stale, skipped)


def warn(directory: pathlib.Path, skipped: list[str]) -> None:
    """Give one warning that names all files that could not be used."""
    if skipped:
        warnings.warn(
            f'Replay files skipped in {directory}: {"; ".join(skipped)}.', stacklevel=3
        )


def _chunk(
    directory: pathlib.Path,
    name: files.Name,
    spec: Spec,
    convert: Callable[[dict], dict] | None,
) -> Chunk:
    arrays = files.read(directory, name)
    if convert is not None:
        arrays = convert(arrays)
    if spec and spec_of(arrays) != spec:
        raise ValueError('stores other keys, shapes or dtypes than the newer steps')
    chunk = Chunk(arrays, name.length, name.uuid, name.time)
    chunk.file = str(name)
    chunk.grown = False
    return chunk


def _useful(found: list[tuple[Chunk, int]], length: int) -> list[tuple[Chunk, int]]:
    """Return the chunks that begin an item or hold steps of one, the oldest first."""
    used: set[bytes] = set()
    for chunk, skip in found:
        begins = chunk.available(length)
        if begins > skip:
            parts = chunk.span(begins - 1, length)
            used |= {chunk.uuid, *(part.uuid for part, _, _ in parts)}
    return [(chunk, skip) for chunk, skip in reversed(found) if chunk.uuid in used]
