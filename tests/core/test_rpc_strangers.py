"""What strangers may hold of a server: connections, memory, places in queues."""

import contextlib
import os
import socket
import struct
import subprocess
import textwrap
import threading
import time
import tracemalloc

import pytest

from embodied.core import rpc
from embodied.core.rpc import room
from tests.core.wire import GREETING, LONG, PYTHON, Peer, frame, request, serving

SECRET = 'correct horse'
HEADER = struct.pack('<Q', 1000)
SECRETS = pytest.mark.parametrize('secret', ['', SECRET], ids=['open', 'secret'])


def until(condition):
    """Wait until a condition holds."""
    for _ in range(LONG * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError('it did not happen')


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


@pytest.fixture
def small(monkeypatch):
    """A server with room for 2 MiB of unfinished frames beside small ones."""
    monkeypatch.setattr(room, 'TOTAL', 2 * 2**20)
    monkeypatch.setattr(room, 'RESERVE', 2**12)
    free = threading.Event()
    with serving(size=len, wait=lambda x: free.wait(LONG)) as (server, client):
        yield server, client, free
        free.set()


def begin(port: int, size: int, share: float = 0.9) -> Peer:
    """Send most of a frame."""
    peer = Peer(port)
    peer.sock.sendall(struct.pack('<Q', size) + bytes(int(size * share)))
    return peer


def test_all_unfinished_frames_share_one_budget(small):
    server, client, _ = small
    held = server._listener.room
    peers = [begin(server.port, 2**20 - 2**12) for _ in range(2)]
    until(lambda: held.used > 1.9 * 2**20)
    third = Peer(server.port)
    third.sock.sendall(request('size', b'x' * 2**20))  # waits for its turn, and is not lost
    assert int(client.call('size', b'x' * 100).result(LONG)) == 100  # small ones pass
    assert held.used <= room.TOTAL
    third.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        third.sock.recv(1)
    third.sock.settimeout(LONG)
    peers[0].sock.close()
    assert third.exchange(b'')[0] == 0
    for peer in (third, *peers):
        peer.sock.close()
    until(lambda: held.used == 0)


def test_what_waits_to_be_executed_counts_until_it_is_answered(small):
    server, client, free = small
    waiting = client.call('wait', b'x' * (2**20 + 2**19))
    held = server._listener.room
    until(lambda: held.used > 2**20)
    big = client.call('size', b'x' * 2**20)
    with rpc.Client(f'localhost:{server.port}') as other:
        assert int(other.call('size', b'x').result(LONG)) == 1
    assert not big.done()
    free.set()
    assert waiting.result(LONG)
    assert int(big.result(LONG)) == 2**20
    until(lambda: held.used == 0)


def test_a_frame_that_does_not_go_on_gives_way_to_others(small, monkeypatch):
    monkeypatch.setattr(room, 'SLOW', 0.0)
    monkeypatch.setattr(room, 'RATE', 2**30)
    server, client, _ = small
    peers = [begin(server.port, 2**20 - 2**12) for _ in range(2)]
    until(lambda: server._listener.room.used > 1.9 * 2**20)
    assert int(client.call('size', b'x' * 2**20).result(LONG)) == 2**20
    assert peers[0].is_dropped()  # the first of them, and no more than had to
    peers[1].sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        peers[1].sock.recv(1)
    for peer in peers:
        peer.sock.close()


def test_nobody_waits_for_a_client_that_left_within_a_frame(small):
    server, client, free = small
    with begin(server.port, 2**20 - 2**12):
        until(lambda: server._listener.room.used > 2**19)
        future = client.call('size', b'x' * 2**20)
    assert int(future.result(LONG)) == 2**20
    free.set()


def test_what_came_of_a_frame_is_freed_with_its_connection():
    """Also while an earlier request of the connection is executed."""
    running, free = threading.Event(), threading.Event()
    with serving(wait=lambda: running.set() or free.wait(LONG)) as (server, _):
        peer = Peer(server.port)
        peer.sock.sendall(request('wait'))
        assert running.wait(LONG)
        tracemalloc.start()
        try:
            peer.sock.sendall(struct.pack('<Q', 30_000_000) + bytes(20_000_000))
            until(lambda: tracemalloc.get_traced_memory()[0] > 25_000_000)
            peer.sock.close()
            until(lambda: tracemalloc.get_traced_memory()[0] < 5_000_000)
        finally:
            tracemalloc.stop()
            free.set()


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


def test_requests_of_closed_connections_are_not_executed():
    calls, running, free = [], threading.Event(), threading.Event()

    def add(x):
        calls.append(x)
        running.set()
        free.wait(LONG)

    with serving(add=add, echo=lambda x: x) as (server, client):
        first = client.call('add', 'first')
        assert running.wait(LONG)
        peer = Peer(server.port)
        peer.sock.sendall(request('add', 'stranger') * 20)
        until(lambda: server.stats()['inflight'] == 21)
        peer.reset()
        until(lambda: len(server._listener._connections) == 1)
        free.set()
        first.result(LONG)
        client.call('add', 'last').result(LONG)
        assert calls == ['first', 'last']
        until(lambda: server.stats()['inflight'] == 0)


def test_requests_of_closed_connections_take_no_memory(monkeypatch):
    running, free = threading.Event(), threading.Event()
    with serving(wait=lambda *x: running.set() or free.wait(LONG)) as (server, client):
        future = client.call('wait')
        assert running.wait(LONG)
        queue = server._methods['wait'].calls
        for _ in range(20):
            with Peer(server.port) as peer:
                peer.sock.sendall(request('wait', b'x' * 2**20) * 3)
                until(lambda: queue.qsize() >= 3)
            until(lambda: not queue.qsize())
        for _ in range(8):
            with Peer(server.port) as peer:
                peer.sock.sendall(request('wait') * 100)
                until(lambda: queue.qsize() >= 100)
            until(lambda: queue.qsize() < 512)
            until(lambda: len(server._listener._connections) == 1)
        free.set()
        assert future.result(LONG)
        until(lambda: server.stats()['inflight'] == 0 and not server._listener.room.used)


def test_the_queue_is_bounded_per_connection(monkeypatch):
    monkeypatch.setattr(room, 'WAITING', 5)
    free = threading.Event()
    with serving(wait=lambda: free.wait(LONG)) as (server, client), Peer(server.port) as peer:
        status, content = peer.exchange(request('wait') * 20)
        assert status != 0
        assert b'5 requests are waiting' in content
        mine = [client.call('wait') for _ in range(3)]
        free.set()
        assert all(x.result(LONG) for x in mine)


def test_full_means_later_to_clients_of_ours(monkeypatch):
    """Nothing is refused, lost, or executed in another order."""
    monkeypatch.setattr(room, 'WAITING', 5)
    calls, free = [], threading.Event()
    with serving(once=('add',), add=lambda x: free.wait(LONG) and calls.append(int(x))) as both:
        server, _ = both
        with rpc.Client(f'localhost:{server.port}', inflight=64) as client:
            futures = [client.call('add', i) for i in range(60)]
            until(lambda: server.stats()['inflight'] >= 5)
            assert server.stats()['inflight'] == 5
            free.set()
            for future in futures:
                future.result(LONG)
    assert calls == list(range(60))


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


def test_the_constants_hold_together():
    """Clients of ours never have more calls than the server takes, nor frames than fit."""
    from embodied.core.rpc import client, frames

    assert client.MOST < room.WAITING
    assert room.TOTAL >= frames.LIMIT
