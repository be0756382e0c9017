"""The client: calls that wait in futures, over a connection that is made again for ever."""

import itertools
import os
import threading
import time
from typing import Any

from . import address, frames, packing, proof
from .connection import Connection
from .errors import Closed, RemoteError, RemoteMistake, Timeout
from .frames import RequestId
from .handshake import TAGS, ClientSide
from .link import Link
from .log import Log

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
    With `server`, one of another name is not asked for anything.
    """

    def __init__(
        self,
        addr: str,
        name: str = 'client',
        inflight: int = 16,
        secret: bytes | str | None = None,
        server: str = '',
    ):
        assert 1 <= inflight <= MOST, inflight
        self.addr, self._server = addr, server
        self._inflight, self._used = inflight, 0
        self._prover = proof.Prover(secret)
        self._ident = os.urandom(frames.CLIENT)
        self._tags = itertools.count()
        self._numbers: dict[str, int] = {}
        self._waiting: dict[int, tuple[Future, packing.Parts]] = {}
        self._connection: Connection | None = None  # once both sides know each other
        self._handshake = ClientSide(self._prover, server)
        self._cond = threading.Condition()
        self._order = threading.Lock()
        self._closed, self._reason = False, 'the client is closed'
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
        self._end('the client is closed')
        self._link.close(timeout)

    def __enter__(self) -> 'Client':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_connect(self, connection: Connection) -> None:
        """Begin to meet the server."""
        with self._cond:
            self._handshake = ClientSide(self._prover, self._server)
            self._link.send(connection, self._handshake.begin())

    def on_end(self, error: BaseException) -> None:
        """Fail all calls, those to come too: the thread that would answer them has ended."""
        self._end(f'the thread of the client has ended ({type(error).__name__}: {error})')

    def on_disconnect(self) -> None:
        with self._cond:
            self._connection = None

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Take a reply. Raises ProtocolError if it is none."""
        tag, status, content = frames.read_reply(frame)
        if tag in TAGS.values():
            self._meet(connection, tag, status, content)
            return
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

    def _meet(self, connection: Connection, tag: int, status: int, content: Any) -> None:
        """Go on with the handshake. Once that is over, send all that was not answered, in
        the order of the calls, before anything new.
        """
        with self._cond:
            handshake = self._handshake
            if handshake.over:
                return
            parts = handshake.take(tag, status, content)
            if parts:
                self._link.send(connection, parts)
            if not handshake.over:
                return
            waiting = [*self._waiting.values()]
            if handshake.refusal:
                self._waiting.clear()
                self._used -= len(waiting)
            else:
                for _, parts in waiting:
                    self._link.send(connection, handshake.sign(parts))
            self._connection = connection
            self._cond.notify_all()
        for future, _ in waiting if handshake.refusal else ():
            future.fail(RemoteMistake, handshake.refusal)

    def _send(self, method: str, args: tuple) -> Future:
        """Send the next request to a method; the numbers rise in the order of sending."""
        tag = next(self._tags)
        number = self._numbers.get(method, 0)
        parts = frames.request(tag, method, args, RequestId(self._ident, number))
        frames.framed([*parts, bytes(proof.SIZE)])  # raises ValueError if it is too large
        self._numbers[method] = number + 1
        future = Future(method, self.addr)
        with self._cond:
            if self._closed:
                raise Closed(f'{method} at {self.addr}: {self._reason}.')
            connection, handshake = self._connection, self._handshake
            if connection and handshake.refusal:
                self._free_slot()
                future.fail(RemoteMistake, handshake.refusal)
                return future
            self._waiting[tag] = future, parts
            self._counts[0] += 1
        if connection:
            parts = handshake.sign(parts)  # may take long, and is in order all the same
            with self._cond:
                if self._connection is connection:  # else it is sent by the next one
                    self._link.send(connection, parts)
        return future

    def _end(self, reason: str) -> None:
        """Fail all calls, and those to come, if that is not done yet."""
        with self._cond:
            if self._closed:
                return
            self._closed, self._reason = True, reason
            waiting = [future for future, _ in self._waiting.values()]
            self._waiting.clear()
            self._cond.notify_all()
        for future in waiting:
            future.fail(Closed, f'{reason}, and there was no answer yet.')

    def _take_slot(self) -> None:
        start = time.monotonic()
        with self._cond:
            self._cond.wait_for(lambda: self._closed or self._used < self._inflight)
            if self._closed:
                raise Closed(f'Client of {self.addr}: {self._reason}.')
            self._used += 1
            self._counts[2] += time.monotonic() - start

    def _free_slot(self) -> None:
        self._used -= 1
        self._cond.notify_all()
