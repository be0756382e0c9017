"""How clients and servers of ours find out whether they belong together."""

import contextlib
import socket
import struct
import threading

import pytest

from embodied import UserError
from embodied.core import rpc
from embodied.core.rpc import frames, handshake, link, proof
from tests.core.wire import LONG, Peer, frame, request

SECRET = 'correct horse'
SAME = 'install the same version'


@pytest.fixture
def server():
    calls: list = []
    found = rpc.Server(rpc.fill('localhost:{auto}'), secret=SECRET)
    found.bind('add', lambda *args: calls.append(args) or {}, once=True)
    found.calls = calls
    with found:
        yield found


def test_a_client_asks_nothing_of_a_server_that_it_does_not_mean(server):
    addr = f'localhost:{server.port}'
    for secret in (SECRET, ''):
        with rpc.Client(addr, secret=secret, server='replay') as client:
            for _ in range(2):
                with pytest.raises(UserError, match="'server', expected 'replay'"):
                    client.call('add', 'x').result(LONG)
    with rpc.Client(addr, secret=SECRET, server='server') as client:
        assert client.call('add', 'x').result(LONG) == {}
    assert server.calls == [('x',)]


def test_a_server_that_only_claims_another_name_gets_no_valid_proof(server):
    """One that stands between hands on another server's welcome, with the name put right."""
    with Peer(server.port) as peer:
        client = handshake.ClientSide(proof.Prover(SECRET), 'replay')
        content = peer.exchange(b''.join(client.begin()[1:]))[1]
        forged = content.replace(b'server', b'replay')
        assert forged != content
        prove = client.take(handshake.TAGS[handshake.HELLO], frames.DONE, memoryview(forged))
        assert not client.over
        assert peer.exchange(b''.join(prove))[0] == frames.REFUSED


def test_calls_wait_for_a_server_with_the_right_secret(server):
    """A refusal holds for one server; the next one is asked anew."""
    port = server.port
    with rpc.Client(f'localhost:{port}', secret='other') as client:
        with pytest.raises(UserError, match='asks for DREAMER_SECRET'):
            client.call('add', 'x').result(LONG)
        server.close()
        next_one = rpc.Server(f'localhost:{port}', secret='other')
        next_one.bind('add', lambda x: x)
        with next_one:
            results = []
            while not results:  # until the client has noticed
                with contextlib.suppress(UserError):
                    results.append(client.call('add', 'y').result(LONG))
            assert results == ['y']


@pytest.mark.parametrize('secret', ['', SECRET])
def test_a_client_of_another_version_is_told(secret):
    with (
        rpc.Server(rpc.fill('localhost:{auto}'), secret=secret) as server,
        Peer(server.port) as peer,
    ):
        head = frames.head(3, handshake.HELLO)
        for version in (handshake.VERSION + 1, 0):
            status, content = peer.exchange(frame(head, version.to_bytes(8, 'little')))
            assert status == frames.REFUSED
            assert SAME in content.decode()


def test_a_client_that_signs_as_before_is_told():
    """Before the version that greets, a request ended with {'$request': 24 bytes + proof}."""
    old = request('add', 1, {'$request': bytes(24 + 32)})
    for secret, status, words in [
        ('', frames.DAMAGED, 'the client of another version'),
        (SECRET, frames.REFUSED, 'must have the same version'),
    ]:
        server = rpc.Server(rpc.fill('localhost:{auto}'), secret=secret)
        server.bind('add', lambda x: x)
        with server, Peer(server.port) as peer:
            found, content = peer.exchange(old)
            assert found == status
            assert words in content.decode()


@pytest.mark.parametrize('secret', ['', SECRET])
def test_a_server_of_another_version_is_named(secret):
    """One that knows no hello, and one that answers it with another number."""
    tag = handshake.TAGS[handshake.HELLO].to_bytes(8, 'little')
    unknown = frame(tag, struct.pack('<Q', frames.UNKNOWN), b"there is no method '$hello'")
    newer = frame(tag, bytes(8), (9).to_bytes(8, 'little'), bytes(100))
    for answer in (unknown, newer):
        with (
            socket.create_server(('127.0.0.1', 0)) as wire,
            rpc.Client(f'localhost:{wire.getsockname()[1]}', secret=secret) as client,
        ):
            future = client.call('add', 'x')
            with wire.accept()[0] as sock:
                sock.sendall(answer)
                with pytest.raises(UserError, match=SAME):
                    future.result(LONG)
                with pytest.raises(UserError, match=SAME):
                    client.call('add', 'y').result(LONG)


def test_a_client_asks_a_full_server_less_and_less_often(monkeypatch):
    """One that takes connections and closes them, for want of places."""
    waits, again = [], threading.Event()

    def wait(self, seconds):
        waits.append(seconds)
        again.set()

    monkeypatch.setattr(link.Link, '_wait', wait)
    with (
        socket.create_server(('127.0.0.1', 0)) as full,
        rpc.Client(f'localhost:{full.getsockname()[1]}'),
    ):
        for _ in range(5):
            again.clear()
            full.accept()[0].close()
            assert again.wait(LONG)
        assert waits[:5] == [0.05, 0.1, 0.2, 0.5, 0.5]
