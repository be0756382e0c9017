"""Files of chunks to come, made while nobody waits for a lock."""

import contextlib
import errno
import os
import pathlib
import uuid
from collections.abc import Iterator

from ..core import stamps
from ..core.errors import UserError
from ..core.retries import persistent
from . import files, mappedfile
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
        spare = self._paths.pop() if self._paths else None

        def place() -> None:
            try:
                os.replace(spare or '', path)
            except FileNotFoundError:  # there is none, or someone has tidied up
                mappedfile.create(path, spec, self._size)

        with self.checked():
            persistent(place, f'Cannot write {path}')

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Let an error of the disk say what to change."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            problem = 'finds no room for its next file' if full else 'cannot use its files'
            remedy = (
                'make room there, or resume with a lower replay.size or'
                if full
                else ('resume when the disk works again, or with')
            )
            raise UserError(
                f'Replay {self._name!r} {problem} in {self._directory} ({error.strerror}). '
                f'What was inserted stays: {remedy} replay.storage ram.'
            ) from error

    def _make(self, spec: Spec) -> pathlib.Path:
        name = files.Name(stamps.after(), uuid.uuid4().bytes, files.NOWHERE, 0, True)
        path = (self._directory / str(name)).with_suffix('.tmp')  # the next load removes it
        with self.checked():
            persistent(lambda: mappedfile.write(path, spec, self._size), f'Cannot write {path}')
            with contextlib.suppress(mappedfile.DamageError):  # someone has tidied up
                mappedfile.touch(path)
        return path
