"""Scalars as lines of strict JSON: metrics.jsonl and scores.jsonl."""

import json
import math
import os
import pathlib
import re
from typing import Any

from .logger import Summary


class JSONL:
    """Appends a line per write, `{"step": …, name: value, …}`, of the scalars that match.

    A line per step, in rising order, if the metrics of one write have several. Values that
    are not finite become null: the metric was there, and JSON knows no NaN.
    """

    def __init__(
        self, logdir: str | os.PathLike, filename: str = 'metrics.jsonl', pattern: str = ''
    ):
        self.name = filename
        self._path = pathlib.Path(logdir) / filename
        self._pattern = re.compile(pattern)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _drop_cut_line(self._path)

    def write(self, summaries: list[Summary]) -> None:
        """Append and flush."""
        lines: dict[int, dict[str, Any]] = {}
        for step, name, value in summaries:
            if not isinstance(value, str) and value.ndim == 0 and self._pattern.search(name):
                lines.setdefault(step, {'step': step})[name] = _finite(float(value))
        text = ''.join(json.dumps(lines[k], allow_nan=False) + '\n' for k in sorted(lines))
        if text:
            with open(self._path, 'a', encoding='utf8') as file:
                file.write(text)

    def close(self) -> None:
        """Nothing is kept back."""


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _drop_cut_line(path: pathlib.Path) -> None:
    """Remove the half of a line that a killed run left, so that the file stays JSON."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b'\n'):
            os.truncate(path, content.rfind(b'\n') + 1)
