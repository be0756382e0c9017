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

from .connection import Connection
from .errors import ProtocolError
from .frames import GREETING, LIMIT
from .log import Log
from .packing import Parts
from .waker import Waker

SILENT = 64  # connections that have not said the greeting yet
UNSENT = 4 * LIMIT  # bytes of replies that a client does not read
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Listener:
    """Hands each frame to `receive(connection, frame)` in its thread."""

    def __init__(self, sock: socket.socket, receive: Callable, log: Log, name: str):
        """Take over a listening socket. `start` begins to serve it."""
        self.wakeups = 0  # of the thread, for tests that nothing polls
        self._sock, self._receive, self._log = sock, receive, log
        self._connections: dict[Connection, None] = {}
        self._silent: dict[Connection, None] = {}
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

    def stop(self) -> None:
        """Accept and read no more; what `send` gets is still sent."""
        self._running = False
        self._waker.wake()
        if self._thread.ident:
            self._thread.join()
        self._sock.close()
        if self._spare is not None:
            os.close(self._spare)
        self._selector.close()

    def finish(self, deadline: float) -> None:
        """After `stop`: send what is left until a time.monotonic() of `deadline`, close all."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                _drain(connection, deadline)
            connection.close()
        self._connections.clear()
        self._waker.close()

    def _run(self) -> None:
        while self._running:
            self.wakeups += 1
            for key, events in self._selector.select():
                if isinstance(key.data, Connection):
                    self._serve(key.data, events)
                else:
                    key.data()
            while self._blocked:
                self._wait_for(self._blocked.popleft())

    def _clear(self) -> None:
        self._waker.clear()

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & WRITE and connection.flush():
                self._watch(connection, READ)
            if events & READ:
                self._read(connection)
        except (OSError, EOFError):
            reason = 'ended within a message' if connection.within_frame else ''
            self._drop(connection, reason)
        except ProtocolError as error:
            self._drop(connection, str(error))
        except Exception as error:  # such as no memory; one client must not end the others
            self._drop(connection, f'raised {type(error).__name__}: {error}')

    def _read(self, connection: Connection) -> None:
        frame = connection.receive()
        if connection.greeted:
            self._silent.pop(connection, None)
        if frame is not None:
            self._receive(connection, frame)

    def _wait_for(self, connection: Connection) -> None:
        if connection.unsent > UNSENT:
            self._drop(connection, 'does not read its replies')
        else:
            self._watch(connection, READ | WRITE)

    def _watch(self, connection: Connection, events: int) -> None:
        if not connection.closed:
            self._selector.modify(connection, events, connection)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse()
            return
        try:
            connection = Connection(sock, GREETING)
            self._selector.register(connection, READ, connection)
        except OSError:  # it is gone already
            sock.close()
            return
        self._connections[connection] = self._silent[connection] = None
        if len(self._silent) > SILENT:
            self._drop(next(iter(self._silent)), 'says nothing, one of many')

    def _refuse(self) -> None:
        """Take and close a connection for which this process has no descriptor left.

        If it stayed in the queue, the thread would be woken for it again and again.
        """
        self._log('refused connections: this process has no file descriptors left')
        if self._spare is None:
            time.sleep(0.05)
        else:
            os.close(self._spare)
            self._spare = None
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _drop(self, connection: Connection, reason: str) -> None:
        if reason:
            self._log(f'dropped a connection from {connection.peer} that {reason}', reason)
        if connection in self._connections:
            del self._connections[connection]
            self._silent.pop(connection, None)
            self._selector.unregister(connection)
            connection.close()


def _drain(connection: Connection, deadline: float) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    while not connection.flush():
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return
