"""Saying for whom a part of a run waits, once a minute."""

import contextlib
import os
import threading
import time
from typing import Any

NOTICE = 60.0  # seconds of waiting after which a wait says for whom, and between two lines


class Wait:
    """Says for whom while it is entered: 'Waiting for 60 s: the close of env 3'.

    Entering costs about a microsecond, so that every step of an environment may do it. One
    thread of the process watches all waits.
    """

    def __init__(self, whom: str):
        self.whom = whom
        self.began = self.due = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()
        self.due = self.began + NOTICE
        _watch.add(self)

    def __exit__(self, *error: Any) -> None:
        _watch.remove(self)


class _Watch:
    def __init__(self) -> None:
        self._waits: dict[int, Wait] = {}
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def add(self, wait: Wait) -> None:
        if self._process != os.getpid():  # forked in the middle of waits that go on elsewhere
            self._waits, self._process = {}, os.getpid()
        self._waits[id(wait)] = wait
        if self._thread is None or not self._thread.is_alive():  # none survives a fork
            self._thread = threading.Thread(target=self._look, name='waits', daemon=True)
            self._thread.start()

    def remove(self, wait: Wait) -> None:
        self._waits.pop(id(wait), None)

    def _look(self) -> None:
        """Print what is due; the wait that is entered next is due after NOTICE at the least."""
        while True:
            waits, now = list(self._waits.values()), time.monotonic()
            for wait in waits:
                if now >= wait.due:
                    wait.due = now + NOTICE
                    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                        print(f'Waiting for {now - wait.began:.0f} s: {wait.whom}', flush=True)
            left = min([x.due - now for x in waits], default=NOTICE)
            time.sleep(max(0.01, min(left, NOTICE)))


_watch = _Watch()
