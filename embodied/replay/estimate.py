"""What a replay takes at capacity, said before it has grown that far."""

import math
import pathlib
import shutil

from .chunk import Spec

STEPID = 20  # bytes, kept beside every step
CGROUP = pathlib.Path('/sys/fs/cgroup')


def bytes_per_step(spec: Spec) -> int:
    """Return the bytes of one step."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in spec.values()) + STEPID


def describe(
    name: str, spec: Spec, capacity: int, disk: bool, directory: pathlib.Path | None
) -> list[str]:
    """Return a line about the size at capacity, and warnings where that exceeds what is free.

    Chunks in memory need the disk too, for the files that `save` writes. Files that are in the
    directory already count as room.
    """
    step = bytes_per_step(spec)
    total = step * capacity
    place = 'on disk' if disk else 'of RAM'
    lines = [f'{name} at {capacity:,} steps of {_size(step)}: {_size(total)} {place}']
    memory = None if disk else free_memory()
    if memory is not None and total > memory:
        lines.append(
            f'Warning: {name} will need {_size(total)} of RAM, but {_size(memory)} are free; '
            'lower --replay.size or set --replay.storage disk.'
        )
    room = None if directory is None else free_disk(directory)
    if room is not None and total > room:
        lines.append(
            f'Warning: {name} will need {_size(total)} of disk, but there is room for '
            f'{_size(room)}; lower --replay.size or change --logdir.'
        )
    return lines


def free_memory() -> int | None:
    """Return the bytes of RAM that this process may still take; None if nothing tells it."""
    found = [_available(), _group_room()]
    return min((x for x in found if x is not None), default=None)


def free_disk(directory: pathlib.Path) -> int | None:
    """Return the bytes that files of a directory, which may be missing, can take; None if
    nothing tells it.
    """
    try:
        used = 0
        if directory.exists():
            used = sum(x.stat().st_size for x in directory.iterdir() if x.is_file())
        while not directory.exists():
            directory = directory.parent
        return shutil.disk_usage(directory).free + used
    except OSError:  # a file is gone meanwhile, or no more may be opened
        return None


def _available() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except Exception:  # it is missing, or reads what this system does not show
        return None


def _group_room() -> int | None:
    """What the limit of a container leaves."""
    try:
        limit = int((CGROUP / 'memory.max').read_text())
        return limit - int((CGROUP / 'memory.current').read_text())
    except (OSError, ValueError):  # there is no group, or it has no limit
        return None


def _size(number: float) -> str:
    for unit in ('B', 'KB', 'MB', 'GB'):
        if number < 1000:
            return f'{number:.3g} {unit}'
        number /= 1000
    return f'{number:.4g} TB'
