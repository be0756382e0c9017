"""Scalars, texts, images and videos for the scope viewer.

Written through scope's own writer, with guards: it takes names of small letters only, uint8
images of 1 or 3 channels, videos of even sides, and one kind of value per name; everything
else makes it raise. It is used without its threads, so that nothing is lost at exit.
"""

import os
import pathlib
import re
from typing import Any

import numpy as np

from ..core.errors import UserError
from .logger import Summary

RECORD = 16  # bytes of one entry in scope's tables: a step and a value, or a file's id


class Scope:
    """Writes everything but vectors, which the viewer cannot show, to logdir/scope.

    fps: of the videos. Raises UserError if the package is missing.
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
            pathlib.Path(logdir),
            workers=0,
            formats=[kinds.Text(), kinds.Float(), kinds.Image(), kinds.Video(fps=fps)],
        )
        self._writer = None  # it makes its folder at once, so it waits for the first metric
        self._columns: dict[tuple[str, str], str] = {}  # (metric, kind) -> name in scope
        _drop_cut_records(pathlib.Path(logdir) / 'scope')

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
            raise errors[0]

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
    """Return (kind, value) as scope's writer takes it; the value is None if it does not."""
    if isinstance(value, str):
        return 'text', value
    if value.ndim == 0:
        return 'scalar', float(value)
    if value.ndim == 1 or not value.size:
        return 'other', None
    value = _channels(_bytes(value))
    if value.ndim == 3:
        return 'image', value
    height, width = value.shape[1:3]
    even = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))
    return 'video', np.pad(value, even, mode='edge')


def _bytes(value: np.ndarray) -> np.ndarray:
    """Numbers of any type as uint8: floats and bools from [0, 1], integers from [0, 255]."""
    if value.dtype.kind in 'fb':
        value = np.nan_to_num(value.astype(np.float32).clip(0, 1)) * 255
    return value.clip(0, 255).astype(np.uint8)


def _channels(value: np.ndarray) -> np.ndarray:
    """1 or 3 channels: without alpha, and the first one of any other number."""
    if value.ndim == 2:
        value = value[..., None]
    count = value.shape[-1]
    return value[..., : 3 if count in (3, 4) else 1]


def _drop_cut_records(folder: pathlib.Path) -> None:
    """Cut tables to whole records: half of one, left by a kill, would shift all later ones."""
    for path in [*folder.glob('*.float'), *folder.glob('*/index')]:
        size = path.stat().st_size
        if size % RECORD:
            os.truncate(path, size - size % RECORD)
