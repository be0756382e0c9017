"""What a server offers: methods with threads of their own, and the reply to one request."""

import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from . import frames, packing
from .connection import Connection

if TYPE_CHECKING:
    from .server import Server


class Method:
    """A function that clients may call, the calls that wait for it, and how busy it is."""

    def __init__(self, name: str, fn: Callable, workers: int, once: bool, deferred: bool):
        self.name, self.fn, self.workers = name, fn, workers
        self.once, self.deferred = once, deferred
        self.calls: queue.SimpleQueue = queue.SimpleQueue()
        self._totals = [0, 0.0, 0.0]
        self._lock = threading.Lock()

    def sweep(self) -> list['Reply']:
        """Take out the calls of closed connections, and return their replies.

        The others keep their order. Only for the one thread that puts calls in.
        """
        calls = []
        with contextlib.suppress(queue.Empty):
            while True:
                calls.append(self.calls.get_nowait())
        for call in calls:
            if not call[0].connection.closed:
                self.calls.put(call)
        return [reply for reply, _ in calls if reply.connection.closed]

    def count(self, waited: float, busy: float) -> None:
        """Note a request that was executed."""
        with self._lock:
            for place, value in enumerate((1, waited, busy)):
                self._totals[place] += value

    def stats(self) -> dict[str, float]:
        """Return totals since the last call."""
        with self._lock:
            totals, self._totals = self._totals, [0, 0.0, 0.0]
        names = 'calls', 'wait', 'busy'
        return {f'{self.name}/{k}': float(x) for k, x in zip(names, totals, strict=True)}


class Reply:
    """Answers one request, from any thread, now or later: `reply(value)` or `reply.error(e)`.

    Only the first answer counts. Each request needs one, or its client waits for ever.
    """

    def __init__(
        self, server: 'Server', method: Method, connection: Connection, tag: bytes, size: int
    ):
        """Answer the request with that tag, whose frame took so many bytes."""
        self.connection, self.tag, self.size = connection, tag, size
        self.ident: frames.RequestId | None = None
        self._server, self._method = server, method
        self._came = self._began = time.monotonic()
        self._unanswered = threading.Lock()

    @property
    def client(self) -> bytes | None:
        """Random bytes of the client object that asks; None for a plain portal client."""
        return self.ident.client if self.ident else None

    def __call__(self, value: Any) -> None:
        """Send a result, which must not change afterwards; an error if it cannot be sent."""
        try:
            parts = packing.pack(value)
        except Exception as error:
            self.error(error)
        else:
            self._finish(frames.DONE, parts)

    def error(self, error: BaseException) -> None:
        """Send an error, and print it: with its traceback unless a user can mend it."""
        message = f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
        self._server.log(f'{self._method.name} failed: {message}{_trace(error)}', message)
        self._finish(frames.FAILED, [message.encode(errors='replace')])

    def begin(self) -> None:
        """Note that the handler starts."""
        self._began = time.monotonic()

    def _finish(self, status: int, parts: packing.Parts) -> None:
        if not self._unanswered.acquire(blocking=False):
            return
        waiters = [self]
        if self._method.once and self.ident:
            name = self._method.name
            # Nobody is known to wait if the error came before the request was begun.
            waiters = self._server.executed.end(self.ident, name, status, parts) or waiters
        for waiter in waiters:
            self._server.send(waiter.connection, waiter.tag, status, parts)
        self._server.settle(self)
        self._method.count(self._began - self._came, time.monotonic() - self._began)


def _trace(error: BaseException) -> str:
    """Return the traceback of a bug below the call itself, empty if there is none."""
    trace = error.__traceback__
    if isinstance(error, UserError) or trace is None or trace.tb_next is None:
        return ''
    return '\n' + ''.join(traceback.format_tb(trace.tb_next)).rstrip()
