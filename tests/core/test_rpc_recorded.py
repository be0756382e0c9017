"""What was recorded on the wire is worth nothing a second time, where there is a secret."""

import contextlib

import pytest

from embodied.core import rpc
from embodied.core.rpc import frames, handshake, proof
from tests.core.wire import GREETING, LONG, Cable, Peer, signed

SECRET = 'correct horse'


@contextlib.contextmanager
def counted(addr: str, name: str = 'replay', once: bool = True):
    """Yield a server of that name, whose calls are counted."""
    calls: list = []
    server = rpc.Server(addr, name, secret=SECRET)
    server.bind('add', lambda *args: calls.append(args) or {}, once=once)
    server.bind('drain', lambda: calls.append('drain') or {})
    server.calls = calls
    with server:
        yield server


@pytest.fixture
def server():
    with counted(rpc.fill('localhost:{auto}'), 'server') as found:
        yield found


def record(server) -> bytes:
    """Return all that a client of ours sends to have two methods executed."""
    with (
        Cable(server.port) as cable,
        rpc.Client(f'localhost:{cable.port}', secret=SECRET) as client,
    ):
        client.call('add', 'x').result(LONG)
        client.call('drain').result(LONG)
        ((_, recorded),) = cable.recorded
    return bytes(recorded)


def play(port: int, data: bytes) -> list[int]:
    """Send what was recorded; return the status of each answer."""
    frames_left, found = data[len(GREETING) :], []
    with Peer(port, data) as peer:
        while frames_left:
            frames_left = frames_left[8 + int.from_bytes(frames_left[:8], 'little') :]
            found.append(peer.exchange(b'')[0])
    return found


def test_a_recorded_connection_is_worth_nothing_at_the_same_server():
    """Neither for methods that run once per request, nor for the others."""
    with counted(rpc.fill('localhost:{auto}')) as server:
        recorded = record(server)
        assert server.calls == [('x',), 'drain']
        for _ in range(3):
            assert play(server.port, recorded)[-2:] == [frames.REFUSED] * 2
        assert server.calls == [('x',), 'drain']


def test_a_recorded_connection_is_worth_nothing_at_the_next_server():
    addr = rpc.fill('localhost:{auto}')
    with counted(addr) as server:
        recorded = record(server)
    with counted(addr) as server:
        assert play(server.port, recorded)[-2:] == [frames.REFUSED] * 2
        assert not server.calls


@pytest.mark.parametrize('name', ['replay', 'actor'])
def test_a_recorded_connection_is_worth_nothing_at_another_server(name):
    """Of this run (another name), or of another run (the same name) with the same secret."""
    with (
        counted(rpc.fill('localhost:{auto}')) as server,
        counted(rpc.fill('localhost:{auto}'), name) as other,
    ):
        assert play(other.port, record(server))[-2:] == [frames.REFUSED] * 2
        assert not other.calls


def test_a_request_is_taken_once_on_its_own_connection_too(server):
    """Whoever can put bytes into a connection can only send what the client signs next."""
    with Peer(server.port) as peer:
        client = peer.meet(SECRET)
        first, second, third = (signed(client, i, i) for i in range(3))
        assert peer.exchange(first)[0] == frames.DONE
        assert peer.exchange(first)[0] == frames.REFUSED
        assert peer.exchange(third)[0] == frames.REFUSED  # in order, and without a gap
        assert peer.exchange(second)[0] == frames.DONE
        assert peer.exchange(second)[0] == frames.REFUSED
        assert peer.exchange(third)[0] == frames.DONE
    assert [int(x) for (x,) in server.calls] == [0, 1, 2]


def test_a_session_begins_once_in_a_connection(server):
    with Peer(server.port) as peer:
        client = peer.meet(SECRET)
        assert peer.exchange(signed(client, 0, 'x'))[0] == frames.DONE
        peer.sock.sendall(b''.join(handshake.ClientSide(proof.Prover(SECRET), '').begin()[1:]))
        assert peer.is_dropped()
    with Peer(server.port) as peer:  # what is signed for one is nothing in another
        other = peer.meet(SECRET)
        assert peer.exchange(signed(client, 1, 'y'))[0] == frames.REFUSED
        assert peer.exchange(signed(other, 1, 'y'))[0] == frames.DONE
    assert server.calls == [('x',), ('y',)]
