"""Lines about what went wrong, each at most once a minute."""

import contextlib
import threading
import time

PAUSE = 60.0  # seconds in which a line is not repeated
KINDS = 200  # lines that are told apart; others are not printed within the pause


class Log:
    """Prints lines with a name in front. Thread-safe."""

    def __init__(self, name: str):
        self._name = name
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, line: str, kind: str = '') -> None:
        """Print a line unless one of its kind (default: the same line) came just now."""
        if self._is_due(kind or line):
            with contextlib.suppress(OSError, ValueError):  # nobody reads the output any more
                print(f'[{self._name}] {line}', flush=True)

    def _is_due(self, kind: str) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._seen) >= KINDS:
                self._seen = {k: v for k, v in self._seen.items() if now - v < PAUSE}
            if now - self._seen.get(kind, -PAUSE) < PAUSE or len(self._seen) >= KINDS:
                return False
            self._seen[kind] = now
            return True
