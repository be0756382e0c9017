"""With a secret, nobody else is served, and it shows nowhere."""

import socket
import struct

import pytest

from embodied.core import rpc
from embodied.core.rpc import frames, handshake, packing, proof
from tests.core.wire import GREETING, LONG, Peer, frame, request, signed

SECRET = 'correct horse'


@pytest.fixture
def server():
    calls: list = []
    found = rpc.Server(rpc.fill('localhost:{auto}'), secret=SECRET)
    found.bind('add', lambda *args: calls.append(args) or {}, once=True)
    found.calls = calls
    with found:
        yield found


def client_of(server, secret):
    return rpc.Client(f'localhost:{server.port}', secret=secret)


@pytest.mark.parametrize('args', [(), ('x',), ({'a': 'x' * 100_000}, b'y' * 5000)])
def test_who_knows_the_secret_is_served(server, args):
    with client_of(server, SECRET.encode()) as client:
        assert client.call('add', *args).result(LONG) == {}
    assert server.calls == [args]


@pytest.mark.parametrize('other', ['', 'correct horsf', b'\xff'])
def test_others_are_refused(server, capsys, other):
    with client_of(server, other) as client:
        for _ in range(3):
            with pytest.raises(rpc.RemoteError, match='this server asks for DREAMER_SECRET'):
                client.call('add', 'x').result(LONG)
    assert not server.calls
    assert capsys.readouterr().out.count('asks for DREAMER_SECRET') == 1


def test_requests_without_proof_are_not_even_read(server, monkeypatch):
    monkeypatch.setattr(packing, 'unpack', lambda _: pytest.fail('it was read'))
    with Peer(server.port) as peer:
        damaged = frame(struct.pack('<QQ', 7, 3), b'add', b'damaged')
        for data in (request('add', 'x'), damaged):
            status, content = peer.exchange(data)
            assert (status, content) == (frames.REFUSED, proof.REFUSAL.encode())
    assert not server.calls


def test_every_part_of_a_request_is_signed(server):
    with Peer(server.port) as peer:
        good = signed(peer.meet(SECRET), 0, 'text', 3)
        for place in (*range(8, 16), *range(24, len(good))):  # all but the two lengths
            bad = bytearray(good)
            bad[place] ^= 1
            assert peer.exchange(bytes(bad))[0] in (frames.REFUSED, frames.UNKNOWN)
        assert not server.calls
        assert peer.exchange(good)[0] == frames.DONE
    assert len(server.calls) == 1


def test_a_request_sent_again_by_its_client_does_not_run_again(server):
    for _ in range(2):  # after a cut, signed for the new connection
        with Peer(server.port) as peer:
            client = peer.meet(SECRET)
            for _ in range(2):
                assert peer.exchange(signed(client, 0, 'x'))[0] == frames.DONE
    assert server.calls == [('x',)]


def test_the_secret_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv('DREAMER_SECRET', SECRET)
    assert rpc.secret() == SECRET.encode()
    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.bind('add', dict)
    addr = f'localhost:{server.port}'
    with server, rpc.Client(addr) as client, rpc.Client(addr, secret='') as stranger:
        assert client.call('add').result(LONG) == {}
        with pytest.raises(rpc.RemoteError, match='DREAMER_SECRET'):
            stranger.call('add').result(LONG)
    monkeypatch.delenv('DREAMER_SECRET')
    assert rpc.secret() == b''


def test_a_server_without_a_secret_serves_a_client_with_one():
    server = rpc.Server(rpc.fill('localhost:{auto}'), secret='')
    server.bind('add', lambda x: x, once=True)
    with server, client_of(server, SECRET) as client:
        assert client.call('add', 'x').result(LONG) == 'x'


def test_the_secret_shows_nowhere(server, capsys):
    prover = proof.Prover(SECRET)
    key = prover._key
    shown = [repr(x) for x in (prover, server, vars(server))]
    with (
        socket.create_server(('127.0.0.1', 0)) as wire,
        rpc.Client(f'localhost:{wire.getsockname()[1]}', secret=SECRET) as client,
    ):
        client.call('add', 'x')
        sock, _ = wire.accept()
        with sock:
            sock.settimeout(LONG)
            read = lambda size: sock.recv(size, socket.MSG_WAITALL)
            data = read(len(GREETING) + 8 + 16 + len('$hello') + 8)
            host = handshake.ServerSide('wire', prover)
            tag = handshake.TAGS[handshake.HELLO].to_bytes(8, 'little')
            hello = frames.read_request(memoryview(data)[len(GREETING) + 8 :])
            sock.sendall(frame(tag, bytes(8), host.welcome(hello)[0].pack()))
            data += read(8 + 16 + len('$prove') + proof.SIZE)
            tag = handshake.TAGS[handshake.PROVE].to_bytes(8, 'little')
            sock.sendall(frame(tag, bytes(8), b''))
            data += read(100)
            assert b'add' in data
        shown += [repr(client), repr(vars(client))]
    with client_of(server, 'wrong') as client, pytest.raises(rpc.RemoteError) as info:
        client.call('add').result(LONG)
    shown += [str(info.value), *capsys.readouterr()]
    for text in (SECRET, repr(key), key.hex()):
        assert not any(text in x for x in shown)
    assert SECRET.encode() not in data
    assert key not in data


def test_no_thread_is_held_up_by_strangers(server):
    with Peer(server.port) as peer, client_of(server, SECRET) as client:
        peer.sock.sendall(request('add', 'x') * 300)
        assert client.call('add', 'y').result(LONG) == {}
    assert server.calls == [('y',)]
