"""One run per folder: a lock that the system takes back however the process ends."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Iterator

from ..core import forks
from ..core.errors import UserError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of some network file systems


@contextlib.contextmanager
def held(logdir: str | os.PathLike) -> Iterator[None]:
    """Hold LOGDIR/.lock, and make the folder if there is none.

    A file system without locks holds nothing. Afterwards the file is gone again, and folders
    that were made here and stayed empty as well. Raises UserError if another run holds it or
    the folder cannot be made.
    """
    folder = pathlib.Path(logdir).expanduser().absolute()
    made = [x for x in (folder, *folder.parents) if not x.exists()]
    path = folder / '.lock'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take(path)
    except BlockingIOError:
        raise UserError(
            f'Another run is going on in {folder}; wait for its end, or take another --logdir.'
        ) from None
    except OSError as error:
        raise UserError(f'Cannot write to --logdir {folder}: {error.strerror}.') from error
    try:
        with forks.undone(lambda: os.close(lock)):  # or a child would hold it beyond a kill
            yield
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
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
