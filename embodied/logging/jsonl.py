"""Scalars as lines of strict JSON: metrics.jsonl and scores.jsonl."""

import json
import math
import os
import pathlib
import re
from typing import Any, BinaryIO

from ..core import stamps
from .logger import Summary

STEP = re.compile(rb'\{"step": (\d+)[,}]')


class JSONL:
    r"""Append lines `{"step": …, name: value, …}` of the scalars that match, in rising steps.

    There is one line per step: what comes later for the step of the last line joins it.
    Values that are not finite become null: the metric was there, and JSON knows no NaN.

    >>> import pathlib
    >>> output = JSONL('logdir', filename='scores.jsonl', pattern='score')
    >>> output.write([(10, 'score', np.array(1.0)), (10, 'loss', np.array(0.5))])
    >>> pathlib.Path('logdir/scores.jsonl').read_text()
    '{"step": 10, "score": 1.0}\n'
    """

    def __init__(
        self, logdir: str | os.PathLike, filename: str = 'metrics.jsonl', pattern: str = ''
    ):
        self.name = filename
        self._path = pathlib.Path(logdir).absolute() / filename
        self._pattern = re.compile(pattern)
        self._last: tuple[int, dict[str, Any]] | None = None  # where it starts, and the line
        self._prepared = False

    def write(self, summaries: list[Summary]) -> None:
        """Append and flush."""
        lines: dict[int, dict[str, Any]] = {}
        for step, name, value in summaries:
            if not isinstance(value, str) and value.ndim == 0 and self._pattern.search(name):
                lines.setdefault(step, {'step': step})[name] = _finite(float(value))
        if not lines:
            return
        self._prepare()
        with open(self._path, 'r+b' if self._path.exists() else 'w+b', buffering=0) as file:
            start = end = file.seek(0, os.SEEK_END)
            if self._last and self._last[0] < end and self._last[1]['step'] in lines:
                start, last = self._last
                lines[last['step']] = {**last, **lines[last['step']]}
            texts = [_line(lines[step]) for step in sorted(lines)]
            _replace(file, start, b''.join(texts))
            self._last = file.tell() - len(texts[-1]), lines[max(lines)]

    def rewind(self, step: int) -> pathlib.Path | None:
        """Move lines beyond a step to NAME-STAMP.jsonl, and return its path if there are any.

        A run that goes on from a checkpoint would otherwise write their steps again.
        """
        self._prepare()
        if not self._path.exists():
            return None
        with open(self._path, 'rb') as file:
            count = sum(_step(line) > step for line in file)
        if not count:
            return None
        side = stamps.beside(self._path)
        kept = self._path.with_name(f'.{self._path.name}.tmp')
        with (
            open(self._path, 'rb') as file, open(kept, 'wb') as below, open(side, 'ab') as above
        ):  # fmt: skip
            for line in file:
                (above if _step(line) > step else below).write(line)
        os.replace(kept, self._path)
        self._last = None
        print(f'{self.name}: {count} lines beyond step {step:,} moved to {side.name}')
        return side

    def close(self) -> None:
        """Nothing is kept back."""

    def _prepare(self) -> None:
        """Make the folder, and the file whole; until this works, every write tries it."""
        if not self._prepared:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _drop_cut_line(self._path)
            self._prepared = True


def _replace(file: BinaryIO, start: int, content: bytes) -> None:
    """Put content in the place of everything from `start` on; a full disk changes nothing."""
    file.seek(start)
    before = file.read()
    try:
        _write_all(file, start, content)
        file.truncate()
    except OSError:
        _write_all(file, start, before)
        file.truncate()
        raise


def _write_all(file: BinaryIO, start: int, content: bytes) -> None:
    file.seek(start)
    while content:
        content = content[file.write(content) :]


def _line(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, allow_nan=False) + '\n').encode()


def _step(line: bytes) -> int:
    """The step of a line; the pattern spares decoding long lines that we wrote."""
    found = STEP.match(line)
    return int(found[1] if found else json.loads(line)['step'])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _drop_cut_line(path: pathlib.Path) -> None:
    """Remove the half of a line that a killed run left, so that the file stays JSON."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b'\n'):
            os.truncate(path, content.rfind(b'\n') + 1)
