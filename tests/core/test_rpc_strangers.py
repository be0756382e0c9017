"""What strangers may hold of a server: connections, memory, places in queues."""

import contextlib
import os
import socket
import struct
import subprocess
import textwrap
import threading

import pytest

from embodied.core import rpc
from embodied.core.rpc import room
from tests.core.wire import GREETING, LONG, PYTHON, Peer, frame, request

SECRET = 'correct horse'
HEADER = struct.pack('<Q', 1000)
SECRETS = pytest.mark.parametrize('secret', ['', SECRET], ids=['open', 'secret'])


SERVER = """
import pathlib, resource, sys
from embodied.core import rpc

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
server = rpc.Server(f'localhost:{sys.argv[1]}')
server.bind('echo', lambda x: x)
server.bind('read', pathlib.Path('/proc/self/status').read_text)
server.start()
print('ready', flush=True)
sys.stdin.read()
server.close()
"""


@contextlib.contextmanager
def process(secret: str, files: int):
    """Run a server that may open so many files; yield its port."""
    port = rpc.split(rpc.fill('localhost:{auto}'))[1]
    command = [*PYTHON, '-c', textwrap.dedent(SERVER), str(port), str(files)]
    pipe, env = subprocess.PIPE, {**os.environ, 'DREAMER_SECRET': secret}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as child:
        try:
            assert child.stdout.readline() == 'ready\n'
            yield port
        finally:
            child.stdin.close()
            child.stdout.read()
    assert child.returncode == 0


FLOODS = {
    'nothing': b'',
    'a byte': b'p',
    'greeting': GREETING,
    'hello': GREETING + frame(struct.pack('<QQ', 7, 6), b'$hello', bytes(7)),
    'header': GREETING + HEADER,
    'part': GREETING + HEADER + b'x',
}


def flood(secret: str, files: int, count: int, data: bytes) -> None:
    """Hold connections that are no clients; the process must go on and serve its clients."""
    with process(secret, files) as port, contextlib.ExitStack() as held:
        client = held.enter_context(rpc.Client(f'localhost:{port}', secret=secret))
        assert client.call('echo', 'x').result(LONG) == 'x'
        for _ in range(count):
            peer = held.enter_context(Peer(port, b''))
            with contextlib.suppress(OSError):
                peer.sock.sendall(data)
        for _ in range(10):  # files are there for what the process itself does
            assert 'VmRSS' in client.call('read').result(LONG)
        with rpc.Client(f'localhost:{port}', secret=secret) as late:
            assert late.call('echo', 'x').result(LONG) == 'x'
        lost = client.stats()
        assert lost['inflight'] == 0
        assert client.connected


@SECRETS
@pytest.mark.parametrize('what', ['nothing', 'greeting', 'part'])
def test_connections_without_a_request_take_no_files_away(secret, what):
    flood(secret, 64, 80, FLOODS[what])


@pytest.mark.torture
@SECRETS
@pytest.mark.parametrize('what', FLOODS)
def test_1100_connections_without_a_request_at_the_usual_limit(secret, what):
    flood(secret, 1024, 1100, FLOODS[what])


@SECRETS
def test_strangers_give_way_to_each_other_host_by_host(secret, monkeypatch):
    monkeypatch.setattr(room, 'unproven', lambda files: 4)
    with rpc.Server(rpc.fill('localhost:{auto}'), secret=secret) as server:
        plain = Peer(server.port)  # it may ask for something one day
        host = '127.0.0.2'
        flood = [
            socket.create_connection(('127.0.0.1', server.port), LONG, (host, 0))
            for _ in range(12)
        ]
        for sock in flood[:8]:
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b''
        assert plain.exchange(request('nothing'))[0] != 0
        for sock in (plain.sock, *flood):
            sock.close()


@SECRETS
def test_a_client_of_ours_counts_as_proven_before_its_first_call(secret, monkeypatch):
    monkeypatch.setattr(room, 'unproven', lambda files: 2)
    with (
        rpc.Server(rpc.fill('localhost:{auto}'), secret=secret) as server,
        rpc.Client(f'localhost:{server.port}', secret=secret) as client,
        contextlib.ExitStack() as held,
    ):
        assert client.connect(LONG)
        connection = client._connection
        peers = [held.enter_context(Peer(server.port)) for _ in range(6)]
        assert all(x.is_dropped() for x in peers[:4])
        assert client._connection is connection
        assert not connection.closed


def test_frames_are_small_before_a_proof():
    with rpc.Server(rpc.fill('localhost:{auto}'), secret=SECRET) as server:
        for meet in (False, True):
            with Peer(server.port) as peer:
                if meet:  # hello alone proves nothing
                    peer.meet(SECRET, prove=False)
                peer.sock.sendall(struct.pack('<Q', room.SMALL + 1) + bytes(100))
                assert peer.is_dropped()
        with Peer(server.port) as peer:
            guest = peer.meet(SECRET)
            assert not guest.refusal
            peer.sock.sendall(struct.pack('<Q', 2**20) + bytes(2**20))
            with pytest.raises(AssertionError, match='ended'):  # such a name is no request
                peer.exchange(b'')


def test_who_does_not_read_refusals_is_dropped():
    with (
        rpc.Server(rpc.fill('localhost:{auto}'), secret=SECRET) as server,
        socket.socket() as sock,
    ):
        sock.settimeout(LONG)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        sock.connect(('127.0.0.1', server.port))
        sock.sendall(GREETING)
        with pytest.raises(OSError, match=r'reset|pipe'):  # noqa: PT012
            for _ in range(LONG * 1000):
                sock.sendall(request('echo', 'x') * 100)


@SECRETS
def test_memory_before_proof_is_small(secret):
    """With a secret: nearly nothing. Without one: no more than what all share."""
    data, count = bytes(2**20), 32
    with process(secret, 256) as port, contextlib.ExitStack() as held:
        client = held.enter_context(rpc.Client(f'localhost:{port}', secret=secret))
        resident = lambda: int(
            client.call('read').result(LONG).split('VmRSS:')[1].split()[0]
        )  # KiB
        before = resident()
        for _ in range(4):
            peer = held.enter_context(Peer(port))
            peer.sock.settimeout(0.2)
            with contextlib.suppress(OSError):  # dropped, or not read any further
                peer.sock.sendall(struct.pack('<Q', 600 * 2**20))
                for _ in range(count):
                    peer.sock.sendall(data)
        grown = resident() - before
        assert grown < (8 if secret else count + 8) * 1024  # one of them at a time


@pytest.mark.parametrize('meet', [False, True])
def test_a_flood_without_proof_takes_no_place_in_a_queue(meet):
    """67-byte requests to a method that is slow, as `act` is in slow environments."""
    calls, running, free = [], threading.Event(), threading.Event()
    server = rpc.Server(rpc.fill('localhost:{auto}'), secret=SECRET)
    server.bind('act', lambda x: calls.append(x) or running.set() or free.wait(LONG))
    with server, rpc.Client(f'localhost:{server.port}', secret=SECRET) as client:
        first = client.call('act', 'first')
        assert running.wait(LONG)
        with Peer(server.port) as peer:
            if meet:
                peer.meet(SECRET, prove=False)
            answered = 0
            while answered < 4500:
                peer.sock.sendall(request('act', 'x') * 100)
                for _ in range(100):
                    assert peer.exchange(b'')[0] == 5
                answered += 100
            mine = [client.call('act', 'mine') for _ in range(10)]
            free.set()
            assert all(x.result(LONG) for x in [first, *mine])
    assert calls == ['first'] + ['mine'] * 10


def test_files_tells_the_limit():
    import resource

    assert room.files() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for files in (16, 64, 256, 1024, 2**20):
        assert room.unproven(files) <= max(4, files // 16)
        assert room.unproven(files) < room.connections(files) < files
