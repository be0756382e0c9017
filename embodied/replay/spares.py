"""Files of chunks to come, made while nobody waits for a lock."""

import contextlib
import errno
import os
import pathlib
import uuid
from collections.abc import Iterator

from ..core import stamps
from ..core.errors import UserError
from . import files, mapped
from .chunk import Spec


class Spares:
    """Files of empty chunks in a directory, which get their names when chunks begin.

    To reserve room on the disk and to touch it first takes long, and sampling need not wait.
    """

    def __init__(self, name: str, directory: pathlib.Path, size: int):
        self._name = name  # of the replay
        self._directory = directory
        self._size = size
        self._paths: list[pathlib.Path] = []

    def prepare(self, spec: Spec, count: int) -> None:
        """Make `count` more files, or none. Raises UserError where the disk is full."""
        made: list[pathlib.Path] = []
        try:
            for _ in range(count):
                made.append(self._make(spec))
        except UserError:
            for path in made:
                path.unlink(missing_ok=True)
            raise
        self._paths += made

    def place(self, path: pathlib.Path, spec: Spec) -> None:
        """Let a file become that of a chunk, or make one if there is none."""
        with self.checked():
            try:
                os.replace(self._paths.pop(), path)
            except (IndexError, FileNotFoundError):  # someone has tidied up
                mapped.create(path, spec, self._size)

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Let the error of a full disk say what to change."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f'Replay {self._name!r} finds no room for its next file in '
                f'{self._directory} ({error.strerror}). What was inserted '
                f'stays: make room there, or resume with a lower replay.size or '
                f'replay.storage ram.'
            ) from error

    def _make(self, spec: Spec) -> pathlib.Path:
        name = files.Name(stamps.after(), uuid.uuid4().bytes, files.NOWHERE, 0, True)
        path = (self._directory / str(name)).with_suffix('.tmp')  # the next load removes it
        with self.checked():
            mapped.write(path, spec, self._size)
            with contextlib.suppress(mapped.DamageError):  # someone has tidied up
                mapped.touch(path)
        return path
