"""What tests of the RPC border share: peers that speak raw bytes, a line to be cut."""

import contextlib
import os
import queue
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

from embodied.core import rpc
from embodied.core.rpc import frames, handshake, packing, proof

GREETING = b'portal_handshake'
LONG = 20  # seconds; nothing here takes as long unless it hangs
PYTHON = [sys.executable, '-W', 'error']


@contextlib.contextmanager
def serving(once: tuple = (), workers: int = 1, **methods: Callable) -> Iterator:
    """Yield a running server with these methods, and a client of it."""
    server = rpc.Server(rpc.fill('localhost:{auto}'))
    for name, fn in methods.items():
        server.bind(name, fn, workers=workers, once=name in once)
    with server, rpc.Client(f'localhost:{server.port}') as client:
        yield server, client


def frame(*parts: bytes) -> bytes:
    """The bytes of a frame."""
    content = b''.join(parts)
    return struct.pack('<Q', len(content)) + content


def request(method: str, *args, tag: int = 7) -> bytes:
    """The frame of a request as a plain portal client sends it."""
    name = method.encode()
    return frame(struct.pack('<QQ', tag, len(name)), name, *packing.pack(list(args)))


def numbered(client: bytes, number: int, method: str = 'add', *args) -> bytes:
    """The frame of a request of a client of ours, without proof."""
    ident = frames.RequestId(client, number)
    return b''.join(frames.framed(frames.request(5, method, args, ident)))


def signed(client: handshake.ClientSide, number: int, *args) -> bytes:
    """A request to add, signed for the session of a client."""
    ident = frames.RequestId(b'c' * 16, number)
    return b''.join(client.sign(frames.request(5, 'add', args, ident)))


class Peer:
    """A connection that sends and receives what the test says."""

    def __init__(self, port: int, greeting: bytes = GREETING):
        self.sock = socket.create_connection(('127.0.0.1', port), LONG)
        self.sock.sendall(greeting)

    def exchange(self, data: bytes) -> tuple[int, bytes]:
        """Send bytes; return status and content of the next reply."""
        self.sock.sendall(data)
        size = struct.unpack('<Q', self._read(8))[0]
        content = self._read(size)
        return struct.unpack('<Q', content[8:16])[0], content[16:]

    def meet(self, secret: str = '', prove: bool = True) -> handshake.ClientSide:
        """Say hello as a client of ours does, and prove the secret; return what signs."""
        client = handshake.ClientSide(proof.Prover(secret), '')
        parts = client.begin()[1:]  # the greeting is said
        for tag in (handshake.TAGS[handshake.HELLO], handshake.TAGS[handshake.PROVE])[
            : 1 + prove
        ]:
            status, content = self.exchange(b''.join(parts))
            parts = client.take(tag, status, memoryview(content))
            if client.over:
                break
        return client

    def is_dropped(self) -> bool:
        """Wait until the other side ends the connection."""
        try:
            return self.sock.recv(1) == b''
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        data = b''
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            assert part, 'the connection ended'
            data += part
        return data

    def reset(self) -> None:
        """End the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.sock.close()

    def __enter__(self) -> 'Peer':
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


class Cable:
    """A proxy to a port, whose connections can be cut while both ends live.

    recorded: connections, and what was sent on each towards the port.
    """

    def __init__(self, port: int):
        self.recorded: list[tuple[socket.socket, bytearray]] = []
        self.plugged: queue.Queue = queue.Queue()  # gets an entry per connection
        self._target = port
        self._listening = socket.create_server(('127.0.0.1', 0))
        self.port = self._listening.getsockname()[1]
        self._pairs: list[tuple] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End all connections at once, with whatever is on its way."""
        pairs, self._pairs = self._pairs, []
        for sock in (x for pair in pairs for x in pair):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            near, _ = self._listening.accept()
            if not self._target:
                near.close()
                return
            try:
                far = socket.create_connection(('127.0.0.1', self._target))
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            self.recorded.append((near, bytearray()))
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._carry, args=pair))
                self._threads[-1].start()
            self.plugged.put(None)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        recorded = next((x for near, x in self.recorded if near is source), None)
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                if recorded is not None:
                    recorded += data
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        source.close()

    def __enter__(self) -> 'Cable':
        return self

    def __exit__(self, *_: object) -> None:
        self._target = 0
        socket.create_connection(('127.0.0.1', self.port)).close()
        self._threads[0].join()
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()


def descriptors() -> list[str]:
    """What the open file descriptors of this process are."""
    found = []
    for name in os.listdir('/proc/self/fd'):
        with contextlib.suppress(FileNotFoundError):  # that of listdir itself
            found.append(os.readlink(f'/proc/self/fd/{name}').split(':')[0])
    return sorted(found)


def until(condition: Callable) -> None:
    """Wait until a condition holds."""
    for _ in range(LONG * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError('it did not happen')


def script(text: str, *args: object) -> subprocess.CompletedProcess:
    """Run a program that must end by itself; return it with its output."""
    code = textwrap.dedent(text)
    command = [*PYTHON, '-c', code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
