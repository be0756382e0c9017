"""Calls between our server and our or portal's clients, as long as nothing goes wrong."""

import queue
import re
import socket
import subprocess
import textwrap
import threading

import numpy as np
import portal
import pytest

import embodied
from embodied.core import rpc
from embodied.core.rpc import address, connection
from tests.core.wire import LONG, PYTHON, Peer, descriptors, request, serving

BATCH = {'image': np.arange(16 * 64 * 64 * 64 * 3, dtype=np.uint32).astype(np.uint8)}


def script(text: str, *args: object) -> subprocess.CompletedProcess:
    """Run a program that must end by itself; return it with its output."""
    code = textwrap.dedent(text)
    command = [*PYTHON, '-c', code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_call_carries_all_kinds_of_data():
    with serving(echo=lambda *args: list(args)) as (_, client):
        args = [np.arange(6).reshape(2, 3).T, {'a': [None, b'bytes', 'text']}, 3, True]
        first, second, third, fourth = client.call('echo', *args).result(LONG)
        np.testing.assert_array_equal(first, args[0])
        assert second == args[1]
        assert (int(third), bool(fourth)) == (3, True)
        assert client.call('echo').result(LONG) == []


@pytest.mark.parametrize('megabytes', [5, 12.6, 30])
def test_large_replies_and_arguments_arrive_whole(megabytes):
    data = np.arange(int(megabytes * 1e6) // 4, dtype=np.uint32)
    with serving(echo=lambda x: x) as (_, client):
        futures = [client.call('echo', {'data': data, 'odd': 'x'}) for _ in range(3)]
        for future in futures:
            np.testing.assert_array_equal(future.result(LONG)['data'], data)


@pytest.mark.parametrize('offset', range(-200, 201, 40))
def test_frames_around_the_size_for_which_memory_is_taken_at_once(offset):
    data = np.random.default_rng(0).bytes(connection.TRUST + offset)
    with serving(echo=lambda x: x) as (_, client):
        assert client.call('echo', data).result(LONG) == data


def test_a_plain_portal_client_is_served():
    calls = []
    with serving(
        once=('add',),
        add=lambda x: calls.append(x) or {},
        sample=lambda: BATCH,
        fail=lambda: 1 / 0,
    ) as (server, _):
        client = portal.Client(f'localhost:{server.port}', logging=False)
        try:
            for index in range(40):
                assert client.add({'a': np.full(3, index), 'b': 'text'}).result(LONG) == {}
            assert [x['a'].tolist() for x in calls] == [[i] * 3 for i in range(40)]
            found = [client.sample() for _ in range(3)]
            for future in found:
                np.testing.assert_array_equal(future.result(LONG)['image'], BATCH['image'])
            client.add(BATCH).result(LONG)
            np.testing.assert_array_equal(calls[-1]['image'], BATCH['image'])
            with pytest.raises(RuntimeError, match='ZeroDivisionError'):
                client.fail().result(LONG)
            with pytest.raises(RuntimeError, match='no method'):
                client.nothing().result(LONG)
            assert client.add({}).result(LONG) == {}
        finally:
            client.close()


def test_calls_of_one_worker_run_in_order_and_of_several_at_once():
    order, together = [], threading.Barrier(3, timeout=LONG)
    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.bind('add', lambda x: order.append(int(x)))
    server.bind('meet', lambda: together.wait() >= 0, workers=3)
    with server, rpc.Client(f'localhost:{server.port}', inflight=64) as client:
        futures = [client.call('add', i) for i in range(60)]
        assert [future.result(LONG) for future in futures] == [None] * 60
        assert order == list(range(60))
        assert all(x.result(LONG) for x in [client.call('meet') for _ in range(3)])


def test_a_method_that_blocks_does_not_block_others():
    free = threading.Event()
    with serving(sample=lambda: free.wait(LONG), add=lambda x: x + 1) as (server, client):
        blocked = [client.call('sample') for _ in range(8)]
        other = portal.Client(f'localhost:{server.port}', logging=False)
        assert [int(client.call('add', i).result(LONG)) for i in range(50)] == list(
            range(1, 51)
        )
        assert int(other.add(3).result(LONG)) == 4
        other.close()
        assert not any(x.done() for x in blocked)
        assert server.stats()['inflight'] == 8
        free.set()
        assert all(x.result(LONG) for x in blocked)


def test_deferred_replies_form_batches_of_several_clients():
    waiting, seen = [], []

    def act(reply, obs):
        waiting.append((reply, obs))
        if len(waiting) == 4:
            total = sum(int(x) for _, x in waiting)
            seen.extend(each.client for each, _ in waiting)
            for each, _ in waiting:
                threading.Thread(target=each, args=({'total': total},)).start()

    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.defer('act', act)
    server.start()
    clients = [rpc.Client(f'localhost:{server.port}') for _ in range(3)]
    plain = portal.Client(f'localhost:{server.port}', logging=False)
    futures = [clients[i].call('act', i) for i in range(3)]
    futures.append(plain.act(10))
    assert [int(x.result(LONG)['total']) for x in futures] == [13] * 4
    idents = {x for x in seen if x is not None}
    assert {len(x) for x in idents} == {16}
    assert (len(idents), seen.count(None)) == (3, 1)
    plain.close()
    for client in clients:
        client.close()
    server.close()


def test_deferred_calls_may_fail_at_once_or_later(capsys):
    replies: queue.Queue = queue.Queue()

    def act(reply, how):
        if how == 'now':
            raise embodied.UserError('not so')
        replies.put(reply)

    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.defer('act', act)
    with server, rpc.Client(f'localhost:{server.port}') as client:
        with pytest.raises(rpc.RemoteError, match=r'act at localhost:\d+: UserError: not so'):
            client.call('act', 'now').result(LONG)
        future = client.call('act', 'later')
        reply = replies.get(timeout=LONG)
        reply.error(RuntimeError('gone'))
        reply({'second': 'answers count for nothing'})
        with pytest.raises(rpc.RemoteError, match='RuntimeError: gone'):
            future.result(LONG)
        unpackable = client.call('act', 'later')
        replies.get(timeout=LONG)({'x': object()})
        with pytest.raises(rpc.RemoteError, match='x: a object cannot be sent'):
            unpackable.result(LONG)
    assert server.stats()['numsend'] == 3
    assert 'act failed: UserError: not so' in capsys.readouterr().out


def test_results_stay_and_errors_come_again():
    with serving(double=lambda x: 2 * x, fail=lambda: 1 / 0) as (_, client):
        future = client.call('double', 4)
        assert future.result(LONG) is future.result(LONG)
        assert future.done()
        failed = client.call('fail')
        for _ in range(3):
            with pytest.raises(rpc.RemoteError, match=r'^fail at localhost:\d+: ZeroDivision'):
                failed.result(LONG)


def test_errors_of_dropped_futures_surface_nowhere():
    with serving(double=lambda x: 2 * x, fail=lambda: 1 / 0) as (_, client):
        for _ in range(30):
            client.call('fail')
        assert int(client.call('double', 4).result(LONG)) == 8


def test_waiting_ends_in_time_and_may_go_on():
    free = threading.Event()
    with serving(wait=lambda: free.wait(LONG)) as (_, client):
        future = client.call('wait')
        with pytest.raises(rpc.Timeout, match=r'wait at localhost:\d+: no answer after 0.01 s'):
            future.result(0.01)
        free.set()
        assert future.result(LONG)


def test_what_cannot_be_sent_takes_no_place():
    with serving(echo=lambda x: x) as (server, _):
        client = rpc.Client(f'localhost:{server.port}', inflight=1)
        for _ in range(3):
            with pytest.raises(TypeError, match='0/a: a object cannot be sent'):
                client.call('echo', {'a': object()})
        assert client.call('echo', 'x').result(LONG) == 'x'
        client.close()


def test_more_calls_than_inflight_wait_for_answers():
    free, made = threading.Event(), []
    with serving(wait=lambda: free.wait(LONG)) as (server, _):
        client = rpc.Client(f'localhost:{server.port}', inflight=4)
        thread = threading.Thread(
            target=lambda: made.extend(client.call('wait') for _ in range(12))
        )
        made.extend(client.call('wait') for _ in range(4))
        thread.start()
        assert client.stats()['inflight'] == 4
        free.set()
        thread.join(LONG)
        assert len([x.result(LONG) for x in made]) == 16
        client.close()


def test_closing_wakes_who_waits():
    server = rpc.Server(rpc.fill('localhost:{auto}'))  # listens, and never answers
    client = rpc.Client(f'localhost:{server.port}', inflight=2)
    futures = [client.call('a'), client.call('b')]
    waiting, errors = threading.Event(), []
    wait_for = client._cond.wait_for

    def wait_with_notice(*args):  # called with the lock, which only the wait gives up
        waiting.set()
        return wait_for(*args)

    client._cond.wait_for = wait_with_notice

    def expect_closed(fn):
        try:
            fn()
        except rpc.Closed as error:
            errors.append(str(error))

    fns = [lambda: client.call('c'), lambda: futures[0].result(LONG)]
    threads = [threading.Thread(target=expect_closed, args=(fn,)) for fn in fns]
    for thread in threads:
        thread.start()
    assert waiting.wait(LONG)
    client.close()
    for thread in threads:
        thread.join(LONG)
    assert len(errors) == 2
    assert all('closed' in x for x in errors)
    with pytest.raises(rpc.Closed):
        futures[1].result(LONG)
    with pytest.raises(rpc.Closed):
        client.call('d')
    assert not client.connect(LONG)
    server.close()


def test_threads_share_a_client():
    with serving(double=lambda x: 2 * x) as (_, client):
        found: list = []

        def work(start):
            found.extend(
                (i, client.call('double', i).result(LONG)) for i in range(start, start + 50)
            )

        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert len(found) == 300
        assert all(int(y) == 2 * x for x, y in found)


def test_statistics_count_since_the_last_call():
    with serving(double=lambda x: 2 * x, other=lambda: None) as (server, client):
        for _ in range(5):
            client.call('double', 1).result(LONG)
        client.close()
        server.close()
        found, own = server.stats(), client.stats()
        assert found['double/calls'] == found['numrecv'] == found['numsend'] == 5
        assert own['numsend'] == own['numrecv'] == 5
        assert found['inflight'] == own['inflight'] == found['other/calls'] == 0
        assert all(isinstance(x, float) and x >= 0 for x in [*found.values(), *own.values()])
        assert {'double/wait', 'double/busy', 'recvrate', 'sendrate'} <= found.keys()
        assert own.keys() == {
            'numsend', 'numrecv', 'sendrate', 'recvrate', 'inflight', 'waitmean'
        }  # fmt: skip
        assert server.stats()['double/calls'] == client.stats()['numsend'] == 0


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
