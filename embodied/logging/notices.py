"""What an output says when it fails: one line a minute at most."""

import contextlib
import textwrap
import time
from collections.abc import Callable

PAUSE = 60.0  # seconds between two lines of one output


class Notices:
    """Prints warnings about the output of this name, and counts those it keeps back."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic):
        self._name = name
        self._now = now
        self._next = -float('inf')
        self._kept = 0  # since the last line

    def error(self, error: BaseException) -> None:
        """Say that metrics may be missing, and why."""
        reason = textwrap.shorten(f'{type(error).__name__}: {error}', 200, placeholder=' …')
        self.say(f'failed and may miss metrics: {reason}')

    def say(self, text: str) -> None:
        """Print a line, unless there was one within the last minute."""
        if self._now() < self._next:
            self._kept += 1
            return
        more = f' ({self._kept} more warnings since the last one)' if self._kept else ''
        self._next, self._kept = self._now() + PAUSE, 0
        with contextlib.suppress(OSError, ValueError):  # outside of a run, see core.output
            print(f'Warning: the logger output {self._name} {text}{more}', flush=True)
