"""The socket side of a client: one thread that connects, reads and writes."""

import atexit
import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from .connection import Connection
from .errors import ProtocolError
from .log import Log
from .packing import Parts
from .waker import Waker

if TYPE_CHECKING:
    from .client import Client

ATTEMPT = 5.0  # seconds for one attempt to connect
PAUSES = (0.05, 0.1, 0.2, 0.5)  # seconds between attempts; the last for all that follow
SILENT = 20  # attempts: parts of a run start at about the same time


class Link:
    """Keeps a client connected until it is closed."""

    def __init__(self, host: str, port: int, client: 'Client', log: Log, name: str):
        self.wakeups = 0  # of the thread, for tests that nothing polls
        self._addr, self._client, self._log = (host, port), client, log
        self._waker = Waker()
        self._running = True
        self._thread = threading.Thread(target=self._run, name=f'{name}-rpc', daemon=True)

    def start(self) -> None:
        self._thread.start()
        atexit.register(self.close, 1.0)  # or the end of the process could meet a print

    def send(self, connection: Connection, parts: Parts) -> None:
        """Send as far as the socket takes it; the thread goes on with the rest."""
        with contextlib.suppress(OSError):  # gone, which the thread sees as well
            if not connection.send(parts):
                self._waker.wake()

    def close(self, timeout: float) -> None:
        """End the thread, which may take as long as the name of a host is looked up."""
        atexit.unregister(self.close)
        self._running = False
        self._waker.wake()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._stay_connected()
        except BaseException as error:  # such as a pipe that somebody closed
            self._client.on_end(error)
        finally:
            self._waker.close()

    def _stay_connected(self) -> None:
        tries = 0
        while self._running:
            sock, reason = self._connect()
            if sock is None:
                if tries >= SILENT:
                    self._log(f'still no connection to {self._where()} ({reason})', 'wait')
                self._wait(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1
                continue
            reason, met = self._talk(Connection(sock))
            if met:  # else the server may be full, or be another program
                tries = 0
            if self._running:
                self._log(f'lost the connection to {self._where()} ({reason})', 'lost')
                self._wait(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    def _where(self) -> str:
        return '{}:{}'.format(*self._addr)

    def _wait(self, seconds: float) -> None:
        """Wait unless the client is closed meanwhile."""
        end = time.monotonic() + seconds
        while self._running and (left := end - time.monotonic()) > 0:
            poll = select.poll()  # select.select knows no descriptors over 1023
            poll.register(self._waker, select.POLLIN)
            poll.poll(left * 1000)
            self._waker.clear()

    def _connect(self) -> tuple[socket.socket | None, str]:
        """Try each address of the host once; return a socket, or None and why not."""
        reason = ''
        try:
            found = socket.getaddrinfo(*self._addr, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter for a label of 64 letters
            return None, str(error)
        for family, kind, proto, _, addr in found:
            sock = None
            try:
                sock = socket.socket(family, kind, proto)
                if self._open(sock, addr):
                    return sock, ''
                reason = 'no answer'
            except OSError as error:  # any: the network may be away for a while
                reason = error.strerror or str(error)
            if sock:
                sock.close()
        return None, reason

    def _open(self, sock: socket.socket, addr: tuple) -> bool:
        """Connect; return whether that worked in time. Raises OSError."""
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(addr)
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        poll.register(self._waker, select.POLLIN)
        end = time.monotonic() + ATTEMPT
        while self._running and (left := end - time.monotonic()) > 0:
            ready = dict(poll.poll(left * 1000))
            self._waker.clear()
            if sock.fileno() in ready:
                error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, os.strerror(error))
                # Where nothing listens on a port, a socket may get that port and find itself.
                return sock.getsockname() != sock.getpeername()
        return False

    def _talk(self, connection: Connection) -> tuple[str, bool]:
        """Exchange frames until the connection ends; return why, and if both sides had met."""
        reason = ''
        try:
            self._client.on_connect(connection)
            self._exchange(connection)
        except (OSError, EOFError) as error:
            reason = str(error) or 'closed by the server'
        except ProtocolError as error:
            reason = f'it {error}'
        except Exception as error:  # such as no memory for a reply
            reason = f'{type(error).__name__}: {error}'
        met = self._client.connected
        self._client.on_disconnect()
        connection.close()
        return reason, met

    def _exchange(self, connection: Connection) -> None:
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        poll.register(connection, select.POLLIN)
        while self._running:
            ready = dict(poll.poll())
            self.wakeups += 1
            self._waker.clear()
            if ready.get(connection.fileno(), 0) & ~select.POLLOUT:
                frame = connection.receive()
                if frame is not None:
                    self._client.on_frame(connection, frame)
            events = select.POLLIN if connection.flush() else select.POLLIN | select.POLLOUT
            poll.modify(connection, events)
