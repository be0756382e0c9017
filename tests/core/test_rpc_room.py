"""The room for requests: one budget for all, bounds per connection, nothing for closed ones."""

import struct
import threading
import tracemalloc

import pytest

from embodied.core import rpc
from embodied.core.rpc import room
from tests.core.wire import LONG, Peer, request, serving, until


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


def test_one_that_ends_while_its_frame_waits_for_room_is_let_go(small):
    """What it has begun is noticed as soon as that is over, and it keeps no place meanwhile."""
    server, client, free = small
    running = client.call('wait', b'x' * (2 * 2**20 - 2**15))
    listener = server._listener
    until(lambda: listener.room.used > 2**20)
    with Peer(server.port) as peer:
        peer.sock.sendall(request('size', b'x' * 2**16))
        until(lambda: listener._paused)
    until(lambda: not listener._paused)
    assert not running.done()
    free.set()
    running.result(LONG)


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
        until(lambda: server.stats()['inflight'] == 5 + 3)
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


def test_the_constants_hold_together():
    """Clients of ours never have more calls than the server takes, nor frames than fit."""
    from embodied.core.rpc import client, frames

    assert client.MOST < room.WAITING
    assert room.TOTAL >= frames.LIMIT
