"""Scalars, texts, images and videos for the scope viewer.

Written through scope's own writer, with guards: it takes names of small letters only, uint8
images of 1 or 3 channels, videos of even sides, and one kind of value per name; everything
else makes it raise. It is used without its threads, whose errors show late and whose last
files may come after its end.
"""

import os
import pathlib
import re
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import media
from .logger import Summary


class Scope:
    """Write everything but vectors, which the viewer cannot show, to logdir/scope.

    fps: of the videos. Raises UserError if the package is missing.

    >>> output = Scope('logdir')
    >>> output.write([(10, 'Loss', np.array(0.5)), (10, 'note', 'a text')])
    >>> output.close()
    >>> import os
    >>> os.listdir('logdir/scope')  # the viewer takes names of small letters only
    [...loss.float...]
    """

    name = 'scope'

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        try:
            import scope
        except ImportError as error:
            raise UserError(
                f'The output scope needs the package scope==0.6.3 ({error}); install it or '
                'take scope out of logger.outputs.'
            ) from error
        kinds = scope.formats
        self._make_writer = lambda: scope.Writer(
            pathlib.Path(logdir).absolute(),
            workers=0,
            formats=[kinds.Text(), kinds.Float(), kinds.Image(), kinds.Video(fps=fps)],
        )
        self._writer = None  # it makes its folder at once, so it waits for the first metric
        self._columns: dict[tuple[str, str], str] = {}  # (metric, kind) -> name in scope
        self._folder = pathlib.Path(logdir).absolute() / 'scope'
        _drop_cut_records(self._folder)

    def write(self, summaries: list[Summary]) -> None:
        """Write every metric; the first error is raised after the last metric."""
        self._writer = self._writer or self._make_writer()
        errors = []
        for step, name, value in summaries:
            kind, value = convert(value)
            if value is None:
                continue
            try:
                self._writer.add(step, {self._column(name, kind): value})
                self._writer.flush()
            except Exception as error:
                errors.append(error)
                for column in self._writer.cols.values():  # or they would be written later
                    column.steps, column.values = [], []
        if errors:
            _drop_cut_records(self._folder)  # of a full disk
            raise errors[0]

    def rewind(self, step: int) -> None:
        """Forget what was written beyond a step, which the run is going to write again."""
        for path, dtype in _tables(self._folder):
            rows = np.fromfile(path, dtype)
            kept = rows[rows['step'] <= step]
            if len(kept) < len(rows):
                kept.tofile(path)

    def close(self) -> None:
        """Nothing is kept back."""

    def _column(self, name: str, kind: str) -> str:
        """Return the name in scope: the metric's own unless it is taken or not allowed."""
        if (name, kind) not in self._columns:
            base = re.sub(r'[^a-z0-9_/]', '_', name.lower()).strip('/') or '_'
            column, count = base, 1
            while column in self._columns.values():
                count += 1
                column = f'{base}_{count}'
            self._columns[name, kind] = column
        return self._columns[name, kind]


def convert(value: Any) -> tuple[str, Any]:
    """Return (kind, value) as scope's writer takes it; the value is None if it does not.

    >>> convert(np.array(0.5))
    ('scalar', 0.5)
    >>> kind, image = convert(np.ones((4, 6)))  # floats count from 0 to 1
    >>> kind, image.shape, image.dtype
    ('image', (4, 6, 1), dtype('uint8'))
    """
    kind = media.kind(value)
    if kind == 'text':
        return kind, value
    if kind == 'scalar':
        return kind, float(value)
    if kind in ('vector', 'other'):
        return 'other', None
    value = media.pixels(value)
    return kind, media.even(value) if kind == 'video' else value


def _tables(folder: pathlib.Path) -> list[tuple[pathlib.Path, np.dtype]]:
    """The tables of scope's format: scalars, and the index of each folder of files."""
    scalars, index = [('step', '>i8'), ('value', '>f8')], [('step', 'i8'), ('file', 'S8')]
    return [
        *((path, np.dtype(scalars)) for path in folder.glob('*.float')),
        *((path, np.dtype(index)) for path in folder.glob('*/index')),
    ]


def _drop_cut_records(folder: pathlib.Path) -> None:
    """Cut tables to whole records: half of one, left by a kill, would shift all later ones."""
    for path, dtype in _tables(folder):
        size = path.stat().st_size
        if size % dtype.itemsize:
            os.truncate(path, size - size % dtype.itemsize)
