"""Ending a run by SIGINT or SIGTERM: it saves what it has learned, and no wait is long.

Python runs signal handlers between two instructions of the main thread, which may be inside
of a compiler for minutes. So the handlers do nothing; a thread of its own hears of a signal
at once, through Python's wakeup descriptor.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PAUSE = 0.05  # seconds between two looks at whether something is being compiled

_lock = threading.Lock()
_compiling = {True: 0, False: 0}


@contextlib.contextmanager
def compiling(awaited: bool = True) -> Iterator[None]:
    """Mark work that cannot be interrupted.

    awaited: whether the run stands still meanwhile; then it must leave nothing behind that
    needs saving.
    """
    with _lock:
        _compiling[awaited] += 1
    try:
        yield
    finally:
        with _lock:
            _compiling[awaited] -= 1


def is_compiling() -> bool:
    """Return whether this process waits for something that is being compiled."""
    return _compiling[True] > 0


@contextlib.contextmanager
def prompt_errors() -> Iterator[None]:
    """For all that a process does: let it end with an error although something compiles.

    Python would wait for that, and a signal meanwhile would crash it.
    """
    try:
        yield
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if not _compiling[False] or not code or not isinstance(code, int):
            raise
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Stop:
    """Hears SIGINT and SIGTERM while it is entered; `requested` says whether one came.

    Before `begin` there is nothing to save: a signal ends the process with exit code 0. So it
    does while the run waits for a compilation. Otherwise the loop looks at `requested`, saves
    and returns; what still compiles beside it is given up when this is left. A second signal
    ends the process at once, with 128 + its number. Entered in another thread than the main
    one, where Python takes no handlers, it hears nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._begun = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """From here on there is something to save."""
        self._begun = True

    def __enter__(self) -> 'Stop':
        if threading.current_thread() is threading.main_thread():
            self._reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            self._before = signal.set_wakeup_fd(self._writer.fileno())
            self._handlers = {x: signal.signal(x, _nothing) for x in SIGNALS}
            self._thread = threading.Thread(target=self._watch, name='signals', daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._thread is None:
            return
        if error[0] is None:
            self._finish()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _finish(self) -> None:
        """Wait for what compiles beside the run, as Python would, but not beyond a signal."""
        if _compiling[False] and not self.requested:
            print('The run has ended; waiting for what is still being compiled.', flush=True)
        while _compiling[False] and not self.requested:
            time.sleep(PAUSE)
        if _compiling[False]:
            _leave(0, 'What is being compiled is not waited for.')

    def _watch(self) -> None:
        for number in self._heard():
            if number and self.requested:
                _leave(128 + number, 'Ended without saving, by a second signal.')
            if number:
                self.requested = True
                if multiprocessing.parent_process() is None:  # others end with their parent
                    name = signal.Signals(number).name
                    print(f'{name}: the run ends; a second signal ends it at once.', flush=True)
            if self.requested and (is_compiling() or not self._begun):
                _leave(0, 'Ended without saving: it had not begun, or was compiling.')

    def _heard(self) -> Iterator[int]:
        """Yield the numbers of our signals and, after the first, 0 again and again."""
        while True:
            self._reader.settimeout(PAUSE if self.requested else None)
            try:
                data = self._reader.recv(1)
            except TimeoutError:
                yield 0
                continue
            if not data:
                return
            if data[0] in SIGNALS:
                yield data[0]


def _nothing(number: int, frame: Any) -> None:
    """Only a Python function as a handler makes a signal wake the descriptor."""


def _leave(code: int, text: str) -> None:
    """End the process from any thread. Its env processes see that and end as well."""
    print(text, flush=True)
    sys.stderr.flush()
    os._exit(code)
