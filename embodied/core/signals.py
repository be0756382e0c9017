"""Ending a run by SIGINT, SIGTERM or SIGHUP: it saves what it has learned; no wait is long.

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

from . import forks

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
APART = 1.0  # seconds from which on a second signal counts: many send two at once
SAYING = 1.0  # seconds in which what ends the process is printed; the reader may be stopped
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


@contextlib.contextmanager
def taken(handler: Any, wakeup: int | None = None) -> Iterator[None]:
    """Let a handler have our signals, in this process alone: a forked child gets none of it.

    SIGHUP stays ignored where it is, since `nohup` asked for that. wakeup: a descriptor that
    wakes up too.
    """
    before = {x: signal.getsignal(x) for x in SIGNALS}
    mine = [x for x in SIGNALS if (x, before[x]) != (signal.SIGHUP, signal.SIG_IGN)]
    former = -1 if wakeup is None else signal.set_wakeup_fd(wakeup)

    def restore() -> None:
        for number in mine:
            signal.signal(number, before[number] or signal.SIG_DFL)  # None: not by Python
        if wakeup is not None:
            signal.set_wakeup_fd(former)

    for number in mine:
        signal.signal(number, handler)
    try:
        with forks.undone(restore):
            yield
    finally:
        restore()


def ignore() -> None:
    """Hear no signal of ours any more: all is done, and this process is about to end.

    Many send a second one; it would make a good end look like a failure.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def by_handler(error: BaseException) -> bool:
    """Return whether a signal handler of this process raised an error, of whatever it met."""
    handlers = [signal.getsignal(x) for x in signal.valid_signals()]
    codes = [getattr(x, '__code__', None) for x in handlers]
    return any(x.f_code in codes for x, _ in traceback.walk_tb(error.__traceback__))


class Stop:
    """Hears our signals while it is entered; `requested` says whether one came.

    Before `begin` there is nothing to save: a signal ends the process with exit code 0. So it
    does while the run waits for a compilation. Otherwise the loop looks at `requested`, saves
    and returns; what still compiles beside it is given up when this is left. A second signal,
    a second after the first or later, ends the process at once, with 128 + its number. Entered
    in another thread than the main one, where Python takes no handlers, it hears nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._begun = False
        self._first = 0.0  # time of the first signal
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """From here on there is something to save."""
        self._begun = True

    def __enter__(self) -> 'Stop':
        if threading.current_thread() is threading.main_thread():
            self._reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            self._taken = taken(_nothing, self._writer.fileno())
            self._taken.__enter__()
            self._thread = threading.Thread(target=self._watch, name='signals', daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._thread is None or os.getpid() != self._process:  # a child has none of it
            return
        if error[0] is None:
            self._finish()
        self._taken.__exit__(None, None, None)
        self._writer.shutdown(socket.SHUT_RDWR)  # a child may hold it as well
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
            if number and not self.requested:
                self._first = time.monotonic()
                if multiprocessing.parent_process() is None:  # others end with their parent
                    name = signal.Signals(number).name
                    _say(f'{name}: the run ends; a second signal ends it at once.')
                self.requested = True
            elif number and time.monotonic() - self._first >= APART:
                _leave(128 + number, 'Ended without saving, by a second signal.')
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


def _say(text: str) -> None:
    """Print, and go on although whoever reads has stopped: the next signal is to be heard."""

    def work() -> None:
        print(text, flush=True)
        sys.stderr.flush()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SAYING)


def _leave(code: int, text: str) -> None:
    """End the process from any thread. Its env processes see that and end as well."""
    _say(text)
    os._exit(code)
