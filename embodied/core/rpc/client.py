"""The client: calls that wait in futures, over a connection that is made again for ever."""

import itertools
import os
import threading
import time
from typing import Any

from . import address, frames, packing
from .connection import Connection
from .errors import Closed, RemoteError, RemoteMistake, Timeout
from .frames import RequestId
from .link import Link
from .log import Log
from .proof import Prover

MOST = 128  # calls without answer; a server keeps as many replies of each client


class Future:
    """The result of a call, once it is there."""

    def __init__(self, method: str, addr: str):
        self._method, self._addr = method, addr
        self._done = threading.Event()
        self._value: Any = None
        self._error: tuple[type[Exception], str] | None = None

    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Return the result, the same object at each call; wait for it if need be.

        Raises RemoteError if the server answered so, Timeout after `timeout` seconds, Closed
        if the client was closed.
        """
        if not self._done.wait(timeout):
            raise Timeout(f'{self._method} at {self._addr}: no answer after {timeout:g} s.')
        if self._error:
            kind, message = self._error
            raise kind(f'{self._method} at {self._addr}: {message}')
        return self._value

    def succeed(self, value: Any) -> None:
        self._value = value
        self._done.set()

    def fail(self, kind: type[Exception], message: str) -> None:
        self._error = kind, message
        self._done.set()


class Client:
    """Calls the methods of a Server of ours at 'HOST:PORT'. Thread-safe.

    It connects by itself in the background, again after every loss, and then sends again
    what was not answered: a method may run twice unless the server binds it with `once`.
    At most `inflight` calls (1 to 128) are without answer; the next one blocks its caller.
    """

    def __init__(
        self,
        addr: str,
        name: str = 'client',
        inflight: int = 16,
        secret: bytes | str | None = None,
    ):
        assert 1 <= inflight <= MOST, inflight
        self.addr = addr
        self._inflight, self._used = inflight, 0
        self._prover = Prover(secret)
        self._ident = os.urandom(frames.CLIENT)
        self._tags = itertools.count()
        self._numbers: dict[str, int] = {}
        self._waiting: dict[int, tuple[Future, packing.Parts]] = {}
        self._connection: Connection | None = None
        self._cond = threading.Condition()
        self._order = threading.Lock()
        self._closed = False
        self._counts, self._since = [0, 0, 0.0], time.monotonic()
        host, port = address.split(addr)
        self._link = Link(host, port, self, Log(name), name)
        self._link.start()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def connect(self, timeout: float | None = None) -> bool:
        """Wait for a connection; return whether there is one."""
        with self._cond:
            self._cond.wait_for(lambda: self._connection or self._closed, timeout)
            return self._connection is not None

    def call(self, method: str, *args: Any) -> Future:
        """Ask for `method(*args)`; arrays in args must not change until the future is done.

        Raises TypeError or ValueError for what cannot be sent, and Closed.
        """
        self._take_slot()
        try:
            with self._order:
                return self._send(method, args)
        except BaseException:
            with self._cond:
                self._free_slot()
            raise

    def stats(self) -> dict[str, float]:
        """Return figures since the last call.

        numsend, numrecv: calls and answers; sendrate, recvrate: the same per second;
        inflight: calls without answer right now; waitmean: seconds that a call was blocked.
        """
        now = time.monotonic()
        with self._cond:
            (sent, received, waited), self._counts = self._counts, [0, 0, 0.0]
            seconds, self._since = max(1e-6, now - self._since), now
            inflight = len(self._waiting)
        return {
            'numsend': float(sent),
            'numrecv': float(received),
            'sendrate': sent / seconds,
            'recvrate': received / seconds,
            'inflight': float(inflight),
            'waitmean': waited / max(1, sent),
        }

    def close(self, timeout: float = 5.0) -> None:
        """End the connection; calls without answer raise Closed."""
        with self._cond:
            self._closed = True
            waiting = [future for future, _ in self._waiting.values()]
            self._waiting.clear()
            self._cond.notify_all()
        for future in waiting:
            future.fail(Closed, 'the client was closed before the answer came.')
        self._link.close(timeout)

    def __enter__(self) -> 'Client':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_connect(self, connection: Connection) -> None:
        """Send all that was not answered, in the order of the calls, before anything new."""
        with self._cond:
            self._link.send(connection, [frames.GREETING])
            for _, parts in self._waiting.values():
                self._link.send(connection, parts)
            self._connection = connection
            self._cond.notify_all()

    def on_disconnect(self) -> None:
        with self._cond:
            self._connection = None

    def on_frame(self, frame: memoryview) -> None:
        """Take a reply. Raises ProtocolError if it is none."""
        tag, status, content = frames.read_reply(frame)
        with self._cond:
            future, _ = self._waiting.pop(tag, (None, None))
            if future is None:  # answered before the connection was lost
                return
            self._counts[1] += 1
            self._free_slot()
        if status != frames.DONE:
            text = str(content, 'utf-8', 'replace')
            mendable = status == frames.REFUSED or text.startswith('UserError: ')
            future.fail(RemoteMistake if mendable else RemoteError, text)
            return
        try:
            future.succeed(packing.unpack(content))
        except Exception as error:
            future.fail(RemoteError, f'could not read the answer: {error}')

    def _send(self, method: str, args: tuple) -> Future:
        """Send the next request to a method; the numbers rise in the order of sending."""
        tag = next(self._tags)
        number = self._numbers.get(method, 0)
        ident = RequestId(self._ident, number)
        parts = frames.request(tag, method, args, ident, self._prover)
        self._numbers[method] = number + 1
        future = Future(method, self.addr)
        with self._cond:
            if self._closed:
                raise Closed(f'{method} at {self.addr}: the client is closed.')
            self._waiting[tag] = future, parts
            self._counts[0] += 1
            if self._connection:
                self._link.send(self._connection, parts)
        return future

    def _take_slot(self) -> None:
        start = time.monotonic()
        with self._cond:
            self._cond.wait_for(lambda: self._closed or self._used < self._inflight)
            if self._closed:
                raise Closed(f'The client of {self.addr} is closed.')
            self._used += 1
            self._counts[2] += time.monotonic() - start

    def _free_slot(self) -> None:
        self._used -= 1
        self._cond.notify_all()
