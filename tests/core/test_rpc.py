"""Calls between our server and our or portal's clients, as long as nothing goes wrong."""

import queue
import threading

import numpy as np
import portal
import pytest

import embodied
from embodied.core import rpc
from embodied.core.rpc import connection
from tests.core.wire import LONG, serving

BATCH = {'image': np.arange(16 * 64 * 64 * 64 * 3, dtype=np.uint32).astype(np.uint8)}


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
