"""One TCP connection: frames in, frames out, and nothing that blocks."""

import collections
import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable

import numpy as np

from .errors import ProtocolError
from .frames import LIMIT
from .packing import Parts
from .proof import Session

ROUNDS = 16  # system calls on one connection before others have their turn
PARTS = 64  # that go into one system call
TRUST = 2**18  # bytes of a frame that must come before memory for all of it is taken
ALIVE_AFTER, ALIVE_EVERY, ALIVE_TRIES = 10, 5, 4  # seconds, seconds, probes
UNHEARD = 20_000  # milliseconds after which what was sent counts as lost


class Connection:
    """A connected socket that does not block. `send` and `flush` may come from any thread."""

    # What a server knows of its client.
    meets = False  # whether it is one of ours, which said $hello
    session: Session | None = None  # if so
    proven = False  # whether a request of it was accepted
    # What the requests of the client take (see `room`).
    held, waiting, left = 0, 0, False
    place: int | None = None  # size of the frame that is not handed on yet
    began = 0.0  # when its header was here
    # What the listener's thread waits for.
    writing, events = False, 0

    def __init__(
        self,
        sock: socket.socket,
        greeting: bytes = b'',
        admit: Callable[['Connection', int], bool] | None = None,
    ):
        """Take over a socket on which `greeting` comes before the first frame.

        admit: says whether there is room for a frame; while it does not, nothing is read.
        """
        sock.setblocking(False)
        self.peer = ''  # host of the other side
        with contextlib.suppress(OSError):
            self.peer = str(sock.getpeername()[0])
        _keep_alive(sock)
        self.greeted = not greeting
        self.closed = False
        self.limit = LIMIT  # bytes of a frame
        self.paused = False  # a frame waits to be admitted
        self._admit = admit
        self._sock = sock
        self.unsent = 0  # bytes
        self._out: collections.deque = collections.deque()
        self._lock = threading.Lock()
        self._greeting = greeting
        self._read = b''  # of the greeting
        self._head = bytearray(8)
        self._length = 0  # of the frame
        self._body: np.ndarray | None = None
        self._target = memoryview(self._head)  # what is still to be filled

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def within_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._body is not None or len(self._target) < 8

    @property
    def pieces(self) -> int:
        """How many parts are not sent yet."""
        return len(self._out)

    def send(self, parts: Parts) -> bool:
        """Send what the socket takes; return whether that was all. Raises OSError."""
        with self._lock:
            waiting = bool(self._out)
            self._out.extend(parts)
            self.unsent += sum(map(len, parts))
            return False if waiting else self._flush(ROUNDS)

    def flush(self) -> bool:
        """Send what the socket takes now; return whether that was all. Raises OSError."""
        with self._lock:
            return self._flush(ROUNDS)

    def _flush(self, rounds: int) -> bool:
        while self._out and rounds:
            rounds -= 1
            try:
                sent = self._sock.sendmsg(list(itertools.islice(self._out, PARTS)))
            except BlockingIOError:
                return False
            self.unsent -= sent
            while self._out and sent >= len(self._out[0]):
                sent -= len(self._out.popleft())
            if sent:
                self._out[0] = memoryview(self._out[0])[sent:]
        return not self._out

    def receive(self) -> memoryview | None:
        """Return the next frame, or None if it is not complete yet.

        Raises OSError, EOFError at the end, or ProtocolError.
        """
        for _ in range(ROUNDS):
            try:
                if not self.greeted:
                    self._greet()
                    continue
                if self.paused and not self._begin():
                    return None
                size = self._sock.recv_into(self._target)
            except BlockingIOError:
                return None
            if not size:
                raise EOFError
            self._target = self._target[size:]
            if not self._target and (frame := self._next()) is not None:
                return frame
        return None

    def _greet(self) -> None:
        part = self._sock.recv(len(self._greeting) - len(self._read))
        if not part:
            raise EOFError
        self._read += part
        if not self._greeting.startswith(self._read):
            raise ProtocolError('does not speak the protocol of portal')
        self.greeted = self._read == self._greeting

    def _next(self) -> memoryview | None:
        """Go on after a part is complete; return the frame if it was its content."""
        if self._body is None:
            self._length = int.from_bytes(self._head, 'little')
            if not 0 < self._length <= LIMIT:
                raise ProtocolError('sent a frame of no length or over the limit')
            if self._length > self.limit:
                raise ProtocolError('sent a large frame before any proof (DREAMER_SECRET)')
            self.paused = True
            return None
        if len(self._body) < self._length:
            begun, self._body = self._body, np.empty(self._length, np.uint8)
            self._body[: len(begun)] = begun
            self._target = self._body.data[len(begun) :]
            return None
        frame, self._body = self._body.data, None
        self._target = memoryview(self._head)
        return frame

    def _begin(self) -> bool:
        """Begin with the content of a frame, if that is admitted."""
        if self._admit and not self._admit(self, self._length):
            return False
        self.paused, self.began = False, time.monotonic()
        self._body = np.empty(min(self._length, TRUST), np.uint8)
        self._target = self._body.data
        return True

    def ended(self) -> bool:
        """Whether the other side has closed, also where there is more to be read."""
        poll = select.poll()
        poll.register(self._sock, getattr(select, 'POLLRDHUP', 0))
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket. What is not sent yet is lost, and what has come of a frame."""
        with self._lock:  # or a thread in `send` could write to what gets the same number
            self.closed = True
            self._out.clear()
            self._sock.close()
        self._body, self._target = None, memoryview(b'')


def _keep_alive(sock: socket.socket) -> None:
    """Notice a peer that vanished without a word, where the system can."""
    with contextlib.suppress(OSError):  # the connection is gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ('TCP_KEEPIDLE', ALIVE_AFTER),
        ('TCP_KEEPINTVL', ALIVE_EVERY),
        ('TCP_KEEPCNT', ALIVE_TRIES),
        ('TCP_USER_TIMEOUT', UNHEARD),
    ):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
