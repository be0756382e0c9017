"""One run per folder: locks that the system takes back however the process ends."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from ..core import forks
from ..core.errors import UserError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of some network file systems


def held(logdir: str | os.PathLike) -> contextlib.AbstractContextManager[None]:
    """Hold LOGDIR/.lock, and make the folder if there is none.

    A file system without locks holds nothing. Afterwards the file is gone again, and folders
    that were made here and stayed empty as well. Raises UserError if another run holds it or
    the folder cannot be made.
    """
    return _held(pathlib.Path(logdir).expanduser().absolute(), 'Another run is going on in')


@contextlib.contextmanager
def replays(*users: Any) -> Iterator[None]:
    """Hold the folders of replays, of those that have one, as `held` does that of a run.

    Taken before a replay is loaded, which already removes files: a run with another logdir
    or script, such as parallel_replay, may use the same folder.
    """
    found = [getattr(replay, 'directory', None) for replay in users]
    with contextlib.ExitStack() as stack:
        for folder in {pathlib.Path(x).resolve() for x in found if x is not None}:
            stack.enter_context(_held(folder, 'Another run uses the replay in'))
        yield


@contextlib.contextmanager
def _held(folder: pathlib.Path, busy: str) -> Iterator[None]:
    made = [x for x in (folder, *folder.parents) if not x.exists()]
    path = folder / '.lock'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take(path)
    except BlockingIOError:
        raise UserError(
            f'{busy} {folder}; wait for its end, or take another --logdir.'
        ) from None
    except OSError as error:
        raise UserError(f'Cannot write to --logdir {folder}: {error.strerror}.') from error
    try:
        with forks.undone(lambda: os.close(lock)):  # or a child would hold it beyond a kill
            yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            for empty in made:
                empty.rmdir()
        os.close(lock)


def _take(path: pathlib.Path) -> int:
    """Return the descriptor of the locked file. BlockingIOError if another one has it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with _where_there_are_locks():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file after it was opened here.
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


@contextlib.contextmanager
def _where_there_are_locks() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
