"""Episodes of an evaluation as MP4 files, encoded frame by frame while they are played."""

import os
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import media
from .logger import Summary


class Videos:
    """Film every image key, also one under log/, of every environment that it is shown.

    Each episode becomes LOGDIR/videos/STEP-envINDEX-KEY.mp4, where STEP is that of its last
    frame; a further one of the same step, as in an evaluation, has a number at its end. What is
    not over at the end is left out.

    >>> output, image = Videos('logdir'), np.zeros((64, 64, 3), np.uint8)
    >>> for i in range(3):
    ...     step = {'image': image, 'is_first': i == 0, 'is_last': i == 2}
    ...     output.watch(100 + i, step, worker=0)
    >>> output.close()
    >>> import os
    >>> os.listdir('logdir/videos')
    ['000000000102-env0-image.mp4']
    """

    name = 'videos'

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        self._folder = pathlib.Path(logdir).absolute() / 'videos'
        self._fps = fps
        self._films: dict[tuple[int, str], tuple[media.Mp4, pathlib.Path]] = {}

    def watch(self, step: int, transition: Mapping[str, Any], worker: int) -> None:
        """Take a step of an environment."""
        for key, value in transition.items():
            value = np.asarray(value)
            if value.dtype == np.uint8 and value.ndim == 3:
                self._frame(step, transition, worker, key, value)

    def write(self, summaries: list[Summary]) -> None:
        """Metrics are not for this output."""

    def close(self) -> None:
        """Drop the episodes that are not over."""
        for film in list(self._films):
            self._drop(film)

    def _frame(
        self,
        step: int,
        transition: Mapping[str, Any],
        worker: int,
        key: str,
        value: np.ndarray,
    ) -> None:
        film = worker, key
        if transition['is_first']:
            self._drop(film)
            self._begin(film)
        if film not in self._films:  # it began before the filming, or its file failed
            return
        writer, path = self._films[film]
        try:
            writer.add(value)
            if transition['is_last']:
                writer.close()
                del self._films[film]
                path.rename(self._free(f'{step:012d}-env{worker}-{_plain(key)}'))
        except Exception:
            self._drop(film)
            raise

    def _begin(self, film: tuple[int, str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = urllib.parse.quote(film[1], safe='')  # no other key has it, unlike `_plain`
        path = self._folder / f'.env{film[0]}-{name}.mp4'
        self._films[film] = media.Mp4(path, self._fps), path

    def _free(self, name: str) -> pathlib.Path:
        """A path that no earlier film has."""
        path, count = self._folder / f'{name}.mp4', 1
        while path.exists():
            count += 1
            path = self._folder / f'{name}-{count}.mp4'
        return path

    def _drop(self, film: tuple[int, str]) -> None:
        """Forget an episode that is cut."""
        if film in self._films:
            writer, path = self._films.pop(film)
            try:
                writer.close()
            finally:
                path.unlink(missing_ok=True)


def _plain(key: str) -> str:
    return key.replace('/', '-')
