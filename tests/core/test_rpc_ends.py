"""Where a server listens, and how servers, clients and whole processes end."""

import re
import socket
import threading

import numpy as np
import pytest

import embodied
from embodied.core import rpc
from embodied.core.rpc import address
from tests.core.wire import LONG, Peer, descriptors, request, script, serving

BATCH = {'image': np.arange(12_600_000, dtype=np.uint32).astype(np.uint8)}


def test_closing_leaves_no_thread_and_no_descriptor():
    before, threads = descriptors(), threading.active_count()
    for _ in range(3):
        with serving(echo=lambda x: x, workers=3) as (server, client):
            client.call('echo', 1).result(LONG)
            plain = Peer(server.port)
            plain.exchange(request('echo', 3))
        plain.sock.close()
        server.close()
        client.close()
    rpc.Server(rpc.fill('localhost:{auto}')).close()
    assert descriptors() == before
    assert threading.active_count() == threads


def test_closing_waits_for_handlers_and_their_replies():
    running, free = threading.Event(), threading.Event()

    def work():
        running.set()
        free.wait(LONG)
        return BATCH

    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.bind('work', work)
    server.start()
    client = rpc.Client(f'localhost:{server.port}')
    future = client.call('work')
    assert running.wait(LONG)
    closing = threading.Thread(target=server.close)
    closing.start()
    free.set()
    np.testing.assert_array_equal(future.result(LONG)['image'], BATCH['image'])
    closing.join(LONG)
    client.close()


def test_closing_gives_up_on_a_handler_that_hangs(capsys):
    running, free = threading.Event(), threading.Event()
    server = rpc.Server(rpc.fill('localhost:{auto}'), 'slow')
    server.bind('hang', lambda: running.set() or free.wait(LONG))
    server.start()
    with rpc.Client(f'localhost:{server.port}') as client:
        future = client.call('hang')
        assert running.wait(LONG)
        server.close(timeout=0.05)
        assert not future.done()
        free.set()
    assert '[slow] slow-hang-0 still runs after 0.05 s' in capsys.readouterr().out


@pytest.mark.parametrize(
    'text', ['', 'localhost', 'localhost:', ':80', 'localhost:port', 'localhost:0', '::1:80',
             'localhost:65536', 'tcp://localhost:80', 'a b:80', 'localhost:{auto}', '[::1]', 80]
)  # fmt: skip
def test_addresses_that_are_none(text):
    with pytest.raises(embodied.UserError, match=r'expected HOST:PORT') as info:
        rpc.split(text)
    assert repr(text) in str(info.value)
    with pytest.raises(embodied.UserError):
        rpc.Server(text)
    with pytest.raises(embodied.UserError):
        rpc.Client(text)


def test_addresses():
    assert rpc.split('some-host.org:80') == ('some-host.org', 80)
    assert rpc.split('[::1]:65535') == ('::1', 65535)
    assert rpc.fill('host:81') == 'host:81'
    host, port = rpc.split(rpc.fill('localhost:{auto}'))
    with socket.socket() as sock:
        sock.bind((host, port))


@pytest.mark.parametrize(
    ('host', 'bind', 'where'),
    [
        ('localhost', '', '127.0.0.1'),
        ('127.0.0.2', '', '127.0.0.2'),
        ('::1', '', '::1'),
        ('replay.example', '', '0.0.0.0'),
        ('10.0.0.1', '', '0.0.0.0'),
        ('fe80::1', '', '::'),
        ('localhost', '0.0.0.0', '0.0.0.0'),
        ('replay.example', '127.0.0.1', '127.0.0.1'),
        ('replay.example', '[::1]', '::1'),
    ],
)
def test_interfaces_to_listen_on(host, bind, where):
    assert address.interface(host, bind) == where


def test_only_the_bound_interface_answers():
    with serving() as (server, _), pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.2', server.port))
    with rpc.Server(rpc.fill('localhost:{auto}'), bind='127.0.0.2') as server:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(('127.0.0.1', server.port))
        socket.create_connection(('127.0.0.2', server.port)).close()


def test_a_taken_port_is_an_error_with_port_and_name():
    with serving(echo=lambda x: x) as (server, client):
        client.call('echo', 1).result(LONG)  # both sides are connected
        words = rf"Server 'replay' cannot listen on port {server.port} of 127.0.0.1 .*in use"
        before = descriptors()
        with pytest.raises(embodied.UserError, match=words):
            rpc.Server(f'localhost:{server.port}', 'replay')
        assert descriptors() == before


def test_ipv6():
    addr = rpc.fill('[::1]:{auto}')
    try:
        server = rpc.Server(addr)
    except embodied.UserError as error:
        pytest.skip(f'this machine has no IPv6: {error}')
    server.bind('double', lambda x: 2 * x)
    with server, rpc.Client(addr) as client:
        assert int(client.call('double', 4).result(LONG)) == 8


def test_nothing_polls():
    """Neither side is woken while nothing happens."""
    with serving(echo=lambda x: x) as (server, client):
        client.call('echo', 1).result(LONG)
        idle = threading.Event()
        idle.wait(0.1)  # what the call itself caused
        sides = server._listener, client._link
        before = [x.wakeups for x in sides]
        idle.wait(0.5)
        assert [x.wakeups for x in sides] == before


def test_a_process_that_used_all_ends_by_itself(tmp_path):
    """Also with a pool and a log, and with nothing closed, where portal's server hangs."""
    done = script(
        """
        import concurrent.futures, sys
        import numpy as np
        from embodied import logging
        from embodied.core import rpc

        output = logging.JSONL(sys.argv[1])
        pool = concurrent.futures.ThreadPoolExecutor(2)
        assert pool.submit(int, 3).result() == 3
        server = rpc.Server(rpc.fill('localhost:{auto}'))
        server.bind('echo', lambda x: x, workers=3)
        server.start()
        client = rpc.Client(f'localhost:{server.port}')
        assert client.call('echo', 'x').result(20) == 'x'
        output.write([(1, 'a', np.float32(3))])
        print('end')
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout.split()) == (0, ['end']), done.stderr
    assert re.search('"a": 3', (tmp_path / 'metrics.jsonl').read_text())


def test_an_idle_process_uses_no_cpu():
    """A polling server takes half a core here; the limit is generous for busy machines."""
    done = script(
        """
        import os, time
        from embodied.core import rpc

        server = rpc.Server(rpc.fill('localhost:{auto}'))
        server.bind('echo', lambda x: x)
        with server, rpc.Client(f'localhost:{server.port}') as client:
            client.call('echo', 1).result(20)
            before = sum(os.times()[:2])
            time.sleep(1)
            print(sum(os.times()[:2]) - before)
        """
    )
    assert float(done.stdout) < 0.2, done.stderr
