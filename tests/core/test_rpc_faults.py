"""What strangers send, what breaks on the way, and what runs out: both sides go on."""

import contextlib
import io
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import embodied
from embodied.core import rpc
from embodied.core.rpc import link, listener, packing, room
from tests.core.wire import (
    GREETING,
    LONG,
    PYTHON,
    Cable,
    Peer,
    descriptors,
    frame,
    request,
    serving,
)

HUGE = (2**40).to_bytes(8, 'little')
GARBAGE = {
    'http': (b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n', 'does not speak the protocol'),
    'random': (bytes(range(256)) * 40, 'does not speak the protocol'),
    'almost': (b'portal_handshakX', 'does not speak the protocol'),
    'no length': (GREETING + bytes(8), 'of no length'),
    'huge length': (GREETING + HUGE, 'over the limit'),
    'largest length': (GREETING + b'\xff' * 8, 'over the limit'),
    'short': (GREETING + frame(b'abc'), 'no request'),
    'only a tag': (GREETING + frame(bytes(8)), 'no request'),
    'long name': (GREETING + frame(bytes(8), HUGE, b'echo'), 'no request'),
    'no name': (GREETING + frame(bytes(16), b'echo'), 'no request'),
    'bad name': (GREETING + frame(bytes(8), struct.pack('<Q', 2), b'\xff\xff'), 'not UTF-8'),
}


@pytest.fixture
def running():
    with serving(echo=lambda x: x, fail=lambda: 1 / 0) as (server, client):
        yield server, client


def rounds(server) -> int:
    return server._listener.wakeups


@pytest.mark.parametrize('kind', GARBAGE)
def test_garbage_is_dropped_and_logged_once(running, capsys, kind):
    server, client = running
    assert client.call('echo', 'x').result(LONG) == 'x'
    data, reason = GARBAGE[kind]
    before, start = descriptors(), rounds(server)
    for _ in range(5):
        with Peer(server.port, data) as peer:
            assert peer.is_dropped()
    assert client.call('echo', 'x').result(LONG) == 'x'
    assert descriptors() == before
    assert rounds(server) - start < 50
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith('[server] dropped a connection from 127.0.0.1 that')
    assert reason in lines[0]


ENDINGS = {
    'at once': b'',
    'within the greeting': GREETING[:5],
    'after the greeting': GREETING,
    'within a length': GREETING + bytes(3),
    'within a frame': GREETING + struct.pack('<Q', 1000) + bytes(100),
}


@pytest.mark.parametrize('how', ['close', 'reset'])
@pytest.mark.parametrize('when', ENDINGS)
def test_connections_may_end_anywhere(running, when, how):
    server, client = running
    assert client.call('echo', 'x').result(LONG) == 'x'
    before, start = descriptors(), rounds(server)
    for _ in range(10):
        peer = Peer(server.port, ENDINGS[when])
        peer.reset() if how == 'reset' else peer.sock.close()
    with Peer(server.port) as peer:  # accepted after the others, whose ends came before it
        assert peer.exchange(request('echo', 'y'))[0] == 0
    assert client.call('echo', 'x').result(LONG) == 'x'
    assert rounds(server) - start < 100
    with Peer(server.port, b'?') as peer:
        assert peer.is_dropped()
    assert len(descriptors()) <= len(before) + 1


def test_requests_that_cannot_be_answered_get_an_error(running, capsys):
    server, client = running
    name = struct.pack('<QQ', 7, 4) + b'echo'
    with Peer(server.port) as peer:
        for data, words in [
            (frame(name), b'cannot be read'),
            (frame(name, bytes(100)), b'cannot be read'),
            (frame(name, b'\xff' * 100), b'cannot be read'),
            (frame(name, *packing.pack({'no': 'list'})), b'not a list'),
            (frame(name, *packing.pack([1, {'$request': b'short'}])), b'$request is damaged'),
            (request('nothing', 1), b"no method 'nothing'"),
            (request('x' * 900), b'no method'),
            (request('echo'), b'TypeError'),
            (request('echo', 1, 2), b'TypeError'),
            (request('fail'), b'ZeroDivisionError: division by zero'),
        ]:
            for _ in range(3):
                status, content = peer.exchange(data)
                assert status != 0
                assert words in content
        assert peer.exchange(request('echo', 'x'))[0] == 0
    assert client.call('echo', 'x').result(LONG) == 'x'
    output = capsys.readouterr().out
    assert output.count('refused a request (echo)') == 1
    assert output.count('refused a request (unknown method)') == 1
    assert output.count('fail failed: ZeroDivisionError') == 1
    assert output.count('echo failed: TypeError') == 2
    assert 'Traceback' not in output
    assert output.count('File "') == 1  # of the division, and not of the arguments


def test_results_that_cannot_be_sent_are_errors():
    answers = {'object': {'a': object()}, 'set': {1}, 'fine': {'a': 1}}
    with serving(get=answers.get) as (_, client):
        for key, words in [('object', 'a: a object cannot'), ('set', 'a set cannot')]:
            with pytest.raises(rpc.RemoteError, match=words):
                client.call('get', key).result(LONG)
        assert int(client.call('get', 'fine').result(LONG)['a']) == 1


def test_silent_connections_give_way_to_new_ones(running, monkeypatch, capsys):
    server, client = running
    monkeypatch.setattr(room, 'unproven', lambda files: 3)
    peers = [Peer(server.port, b'') for _ in range(4)]
    assert peers[0].is_dropped()
    with Peer(server.port) as peer:
        assert peer.exchange(request('echo', 'x'))[0] == 0
    assert client.call('echo', 'x').result(LONG) == 'x'
    for peer in peers:
        peer.sock.close()
    assert 'says nothing' in capsys.readouterr().out


def test_a_flood_of_requests_is_answered_with_errors(monkeypatch):
    monkeypatch.setattr(room, 'WAITING', 5)
    free = threading.Event()
    with (
        serving(wait=lambda: free.wait(LONG), echo=lambda x: x) as (server, client),
        Peer(server.port) as peer,
    ):
        status, content = peer.exchange(request('wait') * 20)
        assert status != 0
        assert b'5 requests are waiting' in content
        assert client.call('echo', 'x').result(LONG) == 'x'
        free.set()


def test_a_reader_that_does_not_read_holds_up_nobody():
    big = np.zeros(30_000_000, np.uint8)
    with serving(big=lambda: big, echo=lambda x: x) as (server, client):
        with Peer(server.port) as peer:
            peer.sock.sendall(request('big') * 3)
            assert client.call('big').result(LONG).nbytes == big.nbytes
            start = rounds(server)
            for _ in range(20):
                assert client.call('echo', 'x').result(LONG) == 'x'
            assert rounds(server) - start < 200
        assert client.call('big').result(LONG).nbytes == big.nbytes


def test_replies_that_nobody_reads_are_not_piled_up(monkeypatch, capsys):
    monkeypatch.setattr(listener, 'UNSENT', 50_000_000)
    big = np.zeros(30_000_000, np.uint8)
    with (
        serving(big=lambda: big, echo=lambda x: x) as (server, client),
        Peer(server.port) as peer,
    ):
        peer.sock.sendall(request('big') * 4)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while client.call('echo', 'x').result(LONG) == 'x':
                if 'does not read its replies' in capsys.readouterr().out:
                    break
            while data := peer.sock.recv(2**20):
                received += len(data)
        assert received < 2 * big.nbytes


def test_replies_that_nobody_reads_are_bounded_for_all_together(monkeypatch, capsys):
    monkeypatch.setattr(listener, 'UNSENT', 50_000_000)
    big = np.zeros(20_000_000, np.uint8)
    with (
        serving(big=lambda: big, echo=lambda x: x) as (server, client),
        contextlib.ExitStack() as held,
    ):
        peers = [held.enter_context(Peer(server.port)) for _ in range(4)]
        for peer in peers:
            peer.sock.sendall(request('big'))
        while 'does not read its replies' not in capsys.readouterr().out:
            assert client.call('echo', 'x').result(LONG) == 'x'


def test_a_handler_that_exits_ends_nothing_else():
    with serving(leave=lambda: sys.exit(3), echo=lambda x: x) as (_, client):
        for _ in range(3):
            with pytest.raises(rpc.RemoteError, match='SystemExit: 3'):
                client.call('leave').result(LONG)
        assert client.call('echo', 'x').result(LONG) == 'x'


def test_nobody_needs_to_read_the_output(running, monkeypatch):
    server, client = running
    broken = io.TextIOWrapper(io.BytesIO())
    broken.close()
    monkeypatch.setattr(sys, 'stdout', broken)
    with Peer(server.port, b'garbage') as peer:
        assert peer.is_dropped()
    with pytest.raises(rpc.RemoteError, match='ZeroDivisionError'):
        client.call('fail').result(LONG)
    assert client.call('echo', 'x').result(LONG) == 'x'


def test_a_socket_that_found_itself_is_no_connection():
    port = free_port()
    with rpc.Client(f'localhost:{port}') as client, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(('127.0.0.1', port))
        assert not client._link._open(sock, ('127.0.0.1', port))
        assert sock.getpeername() == sock.getsockname()
        assert not client.connected


SERVER = """
import resource, sys
from embodied.core import rpc

if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
server = rpc.Server(f'localhost:{sys.argv[1]}')
server.bind('echo', lambda x: x)
server.start()
print('ready', flush=True)
sys.stdin.read()
server.close()
"""


@contextlib.contextmanager
def process(port: int, files: int = 0):
    """Run a server in a process of its own."""
    command = [*PYTHON, '-c', textwrap.dedent(SERVER), str(port), str(files)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdout.readline() == 'ready\n'
            yield child
        finally:
            child.stdin.close()
            child.rest = child.stdout.read()


def free_port() -> int:
    return rpc.split(rpc.fill('localhost:{auto}'))[1]


def test_a_port_scan_with_few_descriptors():
    port = free_port()
    with process(port, files=64) as child, rpc.Client(f'localhost:{port}') as client:
        assert client.call('echo', 'x').result(LONG) == 'x'
        count = lambda: len(os.listdir(f'/proc/{child.pid}/fd'))
        before = count()
        for _ in range(500):
            socket.create_connection(('127.0.0.1', port)).close()
        with Peer(port) as peer:
            assert peer.exchange(request('echo', 'x'))[0] == 0
        assert client.call('echo', 'x').result(LONG) == 'x'
        with Peer(port, b'?') as peer:
            assert peer.is_dropped()
        assert count() <= before + 1
    assert child.returncode == 0


def test_more_connections_than_descriptors():
    port = free_port()
    with process(port, files=40) as child, rpc.Client(f'localhost:{port}') as client:
        assert client.call('echo', 'x').result(LONG) == 'x'
        peers = []
        for _ in range(60):  # each asks for something, so that none has to go for another
            peers.append(Peer(port))
            with contextlib.suppress(OSError):
                peers[-1].sock.sendall(request('echo', 'x'))
                peers[-1].sock.recv(1)
        assert peers[-1].is_dropped()
        assert client.call('echo', 'x').result(LONG) == 'x'
        for peer in peers:
            peer.sock.close()
        with rpc.Client(f'localhost:{port}') as other:
            assert other.call('echo', 'x').result(LONG) == 'x'
    assert 'no file descriptors left' in child.rest
    assert child.returncode == 0


def test_a_client_goes_on_after_kills_of_the_server(capsys):
    port = free_port()
    with rpc.Client(f'localhost:{port}') as client:
        early = [client.call('echo', i) for i in range(3)]  # nothing listens yet
        assert not client.connected
        assert not client.connect(0)
        for turn in range(2):
            with process(port) as child:
                assert [int(x.result(LONG)) for x in early] == [0, 1, 2]
                assert client.connect(LONG)
                assert int(client.call('echo', turn).result(LONG)) == turn
                child.kill()
        late = client.call('echo', 'late')
        with process(port):
            assert late.result(LONG) == 'late'
    assert 'lost the connection' in capsys.readouterr().out


def test_cut_connections_lose_no_call(running):
    server, _ = running
    with Cable(server.port) as cable, rpc.Client(f'localhost:{cable.port}') as client:
        data = np.arange(300_000)
        for _ in range(5):
            futures = [client.call('echo', data + i) for i in range(8)]
            cable.cut()
            for i, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(LONG), data + i)


WRONG = {
    'http': b'HTTP/1.0 400 Bad Request\r\n\r\n',
    'no length': bytes(8),
    'huge': HUGE,
    'short': frame(b'abc'),
}


@pytest.mark.parametrize('kind', WRONG)
def test_a_client_survives_what_is_no_server(capsys, kind):
    port = free_port()
    with rpc.Client(f'localhost:{port}') as client:
        with socket.create_server(('127.0.0.1', port)) as wrong:
            future = client.call('echo', 'x')
            for _ in range(3):
                sock, _ = wrong.accept()
                with sock:
                    sock.sendall(WRONG[kind])
                    with contextlib.suppress(ConnectionResetError):
                        while sock.recv(2**16):
                            pass
        server = rpc.Server(f'localhost:{port}')
        server.bind('echo', lambda x: x)
        with server:
            assert future.result(LONG) == 'x'
    assert capsys.readouterr().out.count('lost the connection') == 1


def test_replies_that_cannot_be_read_fail_their_call_alone():
    with (
        socket.create_server(('127.0.0.1', 0)) as wrong,
        rpc.Client(f'localhost:{wrong.getsockname()[1]}') as client,
    ):
        futures = [client.call('echo', 'x') for _ in range(3)]
        sock, _ = wrong.accept()
        with sock:
            sock.sendall(frame(struct.pack('<QQ', 0, 0), b'damaged'))
            sock.sendall(frame(struct.pack('<QQ', 99, 0), *packing.pack('nobody asked')))
            sock.sendall(frame(struct.pack('<QQ', 1, 4), b'text \xff'))
            sock.sendall(frame(struct.pack('<QQ', 2, 0), *packing.pack('fine')))
            with pytest.raises(rpc.RemoteError, match='could not read the answer'):
                futures[0].result(LONG)
            with pytest.raises(rpc.RemoteError, match='text'):
                futures[1].result(LONG)
            assert futures[2].result(LONG) == 'fine'


@pytest.mark.parametrize('host', ['no-such-host.invalid', '255.255.255.255', 'a' * 64])
def test_hosts_that_cannot_be_reached_are_tried_again(capsys, monkeypatch, host):
    """portal ends the whole process when a network is unreachable."""
    monkeypatch.setattr(link, 'SILENT', 1)
    client = rpc.Client(f'{host}:5000')
    future = client.call('echo', 'x')
    while 'still no connection' not in capsys.readouterr().out:
        threading.Event().wait(0.01)
    client.close()
    with pytest.raises(rpc.Closed):
        future.result(LONG)


def test_a_user_error_of_a_handler_is_one_line(capsys):
    def refuse():
        raise embodied.UserError('no such env')

    with serving(add=refuse) as (_, client):
        for _ in range(4):
            with pytest.raises(rpc.RemoteError, match='UserError: no such env'):
                client.call('add').result(LONG)
    assert capsys.readouterr().out == '[server] add failed: UserError: no such env\n'
