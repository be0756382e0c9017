"""What a forked child must not keep of this process: signal handlers, locks, connections.

Environments fork, by `multiprocessing` or by themselves. A child with our handlers would turn
its own end into that of the run, and one with our descriptors would keep a lock that a kill
has to free, or a connection whose end has to be seen.
"""

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

_undo: list[Callable[[], Any]] = []
_masks = threading.local()  # of the thread that forks


@contextlib.contextmanager
def undone(fn: Callable[[], Any]) -> Iterator[None]:
    """While this is entered, call fn() in every child as soon as it is forked.

    Signals that the child gets before that wait for it.
    """
    _register()
    _undo.append(fn)
    try:
        yield
    finally:
        if fn in _undo:  # it is not in a child that gets here
            _undo.remove(fn)


@functools.cache
def _register() -> None:
    """Hooks stay for ever, so that there is one for all."""
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_begin)


def _block() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _begin() -> None:
    functions = [*reversed(_undo)]
    _undo.clear()
    for fn in functions:
        with contextlib.suppress(OSError, ValueError):
            fn()
    pending = signal.SIGINT in signal.sigpending()
    if pending and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Python drops exceptions of this function, such as KeyboardInterrupt.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _unblock()
