"""The socket side of a server: one thread that accepts, reads and writes, and never polls."""

import collections
import contextlib
import errno
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable

from . import room
from .connection import Connection
from .errors import ProtocolError
from .frames import GREETING, LIMIT
from .log import Log
from .packing import Parts
from .waker import Waker

UNSENT = 4 * LIMIT  # bytes of replies that clients do not read, all together
UNREAD = 2**16  # bytes of replies that a stranger does not read
PIECES = 2**15  # parts of replies that a client does not read
AT_ONCE = 1.0  # seconds for the thread to see that it is to stop
LOOK = 1.0  # seconds between two looks at frames that others wait for
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Listener:
    """Hands each frame to `receive(connection, frame)` in its thread.

    `forget(connection)` hears of each that has ended. `limit` is what the frame of a connection
    may have until it is trusted. `failure` is the error that ended the thread.
    """

    def __init__(
        self,
        sock: socket.socket,
        receive: Callable,
        forget: Callable,
        limit: int,
        log: Log,
        name: str,
    ):
        """Take over a listening socket. `start` begins to serve it."""
        self.wakeups = 0  # of the thread, for tests that nothing polls
        self.failure: BaseException | None = None
        self.room = room.Room()
        self._sock, self._receive, self._forget, self._log = sock, receive, forget, log
        self._limit, self._files = limit, room.files()
        self._connections: dict[Connection, None] = {}
        self._unproven: dict[Connection, None] = {}
        self._paused: dict[Connection, None] = {}  # their frames wait for room
        self._looked = 0.0
        self._blocked: collections.deque[Connection] = collections.deque()
        self._waker = Waker()
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._running = True
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, READ, self._clear)
        self._selector.register(sock, READ, self._accept)
        self._thread = threading.Thread(target=self._run, name=f'{name}-rpc', daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, connection: Connection, parts: Parts) -> None:
        """Send a frame as far as the socket takes it; the thread goes on with the rest."""
        if connection.closed:
            return
        with contextlib.suppress(OSError):  # gone, which the thread sees as well
            if not connection.send(parts):
                self._blocked.append(connection)
                self._waker.wake()

    def trust(self, connection: Connection) -> None:
        """Note that a request of a connection is accepted. In the thread of the listener."""
        if not connection.proven:
            connection.proven, connection.limit = True, LIMIT
            self._unproven.pop(connection, None)

    def free(self, connection: Connection, size: int) -> None:
        """Give back the room of a frame."""
        self.room.give(connection, size)
        if self._paused:
            self._waker.wake()

    def check(self) -> None:
        """Raise the error that has ended the thread, or must have if it could wake up."""
        if self.failure:
            raise self.failure
        for each in (self._waker, self._selector):
            if hasattr(each, 'fileno'):  # not every selector has a file of its own
                os.fstat(each.fileno())

    def stop(self, timeout: float) -> None:
        """Accept and read no more; what `send` gets is still sent."""
        self._running = False
        self._waker.wake()
        if self._thread.ident:
            self._thread.join(timeout + AT_ONCE)
        for close in (self._sock.close, self._selector.close, self._close_spare):
            with contextlib.suppress(OSError):  # somebody has closed it already
                close()

    def finish(self, deadline: float) -> None:
        """After `stop`: send what is left until a time.monotonic() of `deadline`, close all."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                if not connection.closed:
                    _drain(connection, deadline)
                connection.close()
        self._connections.clear()
        self._waker.close()

    def _run(self) -> None:
        try:
            self._listen()
        except BaseException as error:  # such as a pipe that somebody closed
            if not self._running:
                return
            self.failure = error
            self._log(f'serves no more: {type(error).__name__}: {error}')
            for close in (self._sock.close, *(x.close for x in self._connections)):
                with contextlib.suppress(OSError):  # clients ask the next server
                    close()

    def _listen(self) -> None:
        while self._running:
            self.wakeups += 1
            for key, events in self._selector.select(LOOK if self._paused else None):
                if isinstance(key.data, Connection):
                    self._serve(key.data, events)
                else:
                    key.data()
            while self._blocked:
                self._wait_for(self._blocked.popleft())
            if self._paused:
                self._resume()

    def _clear(self) -> None:
        self._waker.clear()

    def _serve(self, connection: Connection, events: int) -> None:
        if connection.closed:  # for another one, in the same round
            return
        try:
            if events & WRITE and connection.flush():
                connection.writing = False
            if events & READ:
                frame = connection.receive()
                if frame is not None:
                    self._receive(connection, frame)
            self._watch(connection)
        except (OSError, EOFError):
            reason = 'ended within a message' if connection.within_frame else ''
            self._drop(connection, reason)
        except ProtocolError as error:
            self._drop(connection, str(error))
        except Exception as error:  # such as no memory; one client must not end the others
            self._drop(connection, f'raised {type(error).__name__}: {error}')

    def _wait_for(self, connection: Connection) -> None:
        """Go on with replies as soon as they are read; drop who lets too many pile up."""
        connection.writing = True
        self._watch(connection)
        if connection.pieces > PIECES or (connection.unsent > UNREAD and not connection.proven):
            self._drop(connection, 'does not read its replies')
            return
        waiting = [x for x in self._connections if x.writing]
        if sum(x.unsent for x in waiting) > UNSENT:
            self._drop(max(waiting, key=lambda x: x.unsent), 'does not read its replies')

    def _watch(self, connection: Connection) -> None:
        """Wait for what a connection is to be served for."""
        if connection.closed:
            return
        if connection.paused:
            self._paused[connection] = None
        events = (0 if connection.paused else READ) | (WRITE if connection.writing else 0)
        before, connection.events = connection.events, events
        if events == before:
            return
        if not before:
            self._selector.register(connection, events, connection)
        elif events:
            self._selector.modify(connection, events, connection)
        else:
            self._selector.unregister(connection)

    def _resume(self) -> None:
        """Go on with frames for which there is room now; drop one that fills it too long."""
        for connection in [*self._paused]:
            self._serve(connection, READ)
            if connection.closed or not connection.paused:
                self._paused.pop(connection, None)
        now = time.monotonic()
        if not self._paused or now - self._looked < LOOK:
            return
        for connection in [*self._paused]:
            if connection.ended():  # nothing of it is read, which would tell
                self._drop(connection, '')
        for connection in self._connections:
            size = connection.place
            if size is not None and now - connection.began > room.SLOW + size / room.RATE:
                self._drop(connection, 'sends too slowly while others wait for memory')
                return
        self._looked = now

    def _admit(self, connection: Connection, size: int) -> bool:
        if not self.room.take(connection, size):
            return False
        connection.place = size
        return True

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse()
            return
        if not self._has_place():
            self._log('refused connections: no file descriptors left for them (ulimit -n)')
            sock.close()
            return
        try:
            connection = Connection(sock, GREETING, self._admit)
            self._watch(connection)
        except OSError:  # it is gone already
            sock.close()
            return
        connection.limit = self._limit
        self._connections[connection] = self._unproven[connection] = None
        if len(self._unproven) > room.unproven(self._files):
            self._drop_unproven()

    def _has_place(self) -> bool:
        """Whether one more connection may be accepted, for which a stranger may have to go."""
        if len(self._connections) < room.connections(self._files):
            return True
        if self._unproven:
            self._drop_unproven()
            return True
        return False

    def _drop_unproven(self) -> None:
        """Drop the oldest connection that is not proven, of the host that has most of them."""
        hosts = collections.Counter(x.peer for x in self._unproven)
        host = hosts.most_common(1)[0][0]
        oldest = next(x for x in self._unproven if x.peer == host)
        what = 'has asked for nothing yet' if oldest.greeted else 'says nothing'
        self._drop(oldest, f'{what}, one of many')

    def _refuse(self) -> None:
        """Take and close a connection for which this process has no descriptor left.

        If it stayed in the queue, the thread would be woken for it again and again.
        """
        self._log('refused connections: this process has no file descriptors left')
        if self._spare is None:
            time.sleep(0.05)
        self._close_spare()
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _close_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)

    def _drop(self, connection: Connection, reason: str) -> None:
        if reason:
            self._log(f'dropped a connection from {connection.peer} that {reason}', reason)
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._unproven.pop(connection, None)
        self._paused.pop(connection, None)
        if connection.events:
            self._selector.unregister(connection)
        connection.close()
        if connection.place is not None:
            self.free(connection, connection.place)
        self.room.leave(connection)
        self._forget(connection)


def _drain(connection: Connection, deadline: float) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    while not connection.flush():
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return
