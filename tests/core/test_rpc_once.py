"""Requests that are sent again, after a cut or a restart, and what runs once all the same."""

import itertools
import queue
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import pytest

from embodied.core import rpc
from embodied.core.rpc import frames, once, packing
from tests.core.wire import LONG, Cable, Peer, numbered, serving

A, B = b'a' * 16, b'b' * 16


class Waiter:
    """Stands for a reply over a connection."""

    def __init__(self, closed: bool = False):
        self.connection = self
        self.closed = closed


def watched(server) -> queue.Queue:
    """A queue that gets what the server finds each request of a `once` method to be."""
    states: queue.Queue = queue.Queue()
    begin = server.executed.begin

    def watch(*args):
        result = begin(*args)
        states.put(result[0])
        return result

    server.executed.begin = watch
    return states


@hypothesis.given(st.lists(st.integers(0, 30)))
def test_numbers_are_a_set(values):
    numbers = once.Numbers()
    for value in values:
        numbers.add(value)
    assert [x for x in range(-1, 32) if x in numbers] == sorted(set(values))
    ranges = numbers.ranges
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(ranges))
    assert once.Numbers(ranges).ranges == ranges


def test_numbers_take_little_memory(monkeypatch):
    monkeypatch.setattr(once, 'RANGES', 4)
    numbers = once.Numbers()
    for value in range(0, 100, 2):
        numbers.add(value)
    assert numbers.ranges == [[0, 92], [94, 94], [96, 96], [98, 98]]
    for value in range(99, 100_000):
        numbers.add(value)
    assert len(numbers.ranges) <= 4


def test_a_repeated_request_gets_the_reply_and_does_not_run_numbered():
    calls = []
    with serving(once=('add',), add=lambda x: calls.append(x) or {'count': len(calls)}) as both:
        server, client = both
        assert int(client.call('add', 'x').result(LONG)['count']) == 1
        with Peer(server.port) as peer:
            first = peer.exchange(numbered(A, 0, 'add', 'y'))
            assert int(packing.unpack(memoryview(first[1]))['count']) == 2
            for _ in range(3):
                assert peer.exchange(numbered(A, 0, 'add', 'y')) == first
            peer.exchange(numbered(B, 0, 'add', 'z'))
            with Peer(server.port) as other:
                assert other.exchange(numbered(A, 0, 'add', 'y')) == first
        assert calls == ['x', 'y', 'z']


def test_errors_are_kept_like_results():
    calls = []
    with (
        serving(once=('add',), add=lambda: calls.append(0) or 1 / 0) as (server, _),
        Peer(server.port) as peer,
    ):
        first = peer.exchange(numbered(A, 0))
        assert first[0] != 0
        assert peer.exchange(numbered(A, 0)) == first
    assert len(calls) == 1


def test_a_request_that_is_still_running_is_answered_where_it_was_repeated():
    free, calls = threading.Event(), []
    with serving(
        once=('add',), workers=2, add=lambda: calls.append(0) or free.wait(LONG)
    ) as both:
        server, _ = both
        states = watched(server)
        with Cable(server.port) as cable, rpc.Client(f'localhost:{cable.port}') as client:
            future = client.call('add')
            assert states.get(timeout=LONG) == once.NEW
            cable.cut()
            assert states.get(timeout=LONG) == once.RUNNING
            assert server.stats()['inflight'] == 1
            free.set()
            assert future.result(LONG)
    assert len(calls) == 1


def test_nothing_runs_twice_over_a_line_that_is_cut_again_and_numbered():
    calls: list = []
    with (
        serving(once=('add',), workers=2, add=lambda x: calls.append(int(x))) as (server, _),
        Cable(server.port) as cable,
        rpc.Client(f'localhost:{cable.port}') as client,
    ):
        for start in range(0, 200, 20):
            futures = [client.call('add', start + i) for i in range(10)]
            cable.cut()
            futures += [client.call('add', start + 10 + i) for i in range(10)]
            assert [x.result(LONG) for x in futures] == [None] * 20
    assert sorted(calls) == list(range(200))


@pytest.mark.parametrize('secret', ['', 'correct horse'], ids=['open', 'secret'])
def test_deferred_requests_run_once_too(monkeypatch, secret):
    monkeypatch.setenv('DREAMER_SECRET', secret)
    replies: queue.Queue = queue.Queue()
    server = rpc.Server(rpc.fill('localhost:{auto}'))
    server.defer('act', lambda reply: replies.put(reply), once=True)
    states = watched(server)
    with server, Cable(server.port) as cable, rpc.Client(f'localhost:{cable.port}') as client:
        future = client.call('act')
        reply = replies.get(timeout=LONG)
        cable.cut()
        assert [states.get(timeout=LONG) for _ in range(2)] == [once.NEW, once.RUNNING]
        reply('answer')
        assert future.result(LONG) == 'answer'
    assert replies.empty()


def test_other_methods_and_plain_clients_run_at_least_once():
    calls = []
    fns = {'add': lambda x: calls.append(x), 'log': lambda x: calls.append(x)}
    with serving(once=('add',), **fns) as (server, _), Peer(server.port) as peer:
        plain = b''.join(
            frames.framed([bytes(8), b'\3' + bytes(7), b'add', *packing.pack(['p'])])
        )
        for data in (numbered(A, 0, 'log', 'l'), plain):
            for _ in range(2):
                assert peer.exchange(data)[0] == 0
    assert calls == ['l', 'l', 'p', 'p']


@pytest.mark.parametrize('secret', ['', 'correct horse'], ids=['open', 'secret'])
def test_what_is_sent_again_to_the_next_server_has_the_same_number(monkeypatch, secret):
    """With a secret it is signed anew. So a handler that keeps numbers loses no call."""
    monkeypatch.setenv('DREAMER_SECRET', secret)
    addr, calls, free = rpc.fill('localhost:{auto}'), {}, threading.Event()

    def add(reply, x):
        calls.setdefault(reply.ident, []).append(int(x))
        reply({})

    def serve():
        server = rpc.Server(addr)
        server.defer('add', add)
        server.bind('wait', lambda: free.wait(LONG))
        return server.start()

    server = serve()
    with rpc.Client(addr, inflight=64) as client:
        futures = [client.call('add', i) for i in range(20)]
        waiting = client.call('wait')
        futures[9].result(LONG)
        closing = threading.Thread(target=server.close)
        closing.start()
        free.set()
        closing.join(LONG)
        futures += [client.call('add', i) for i in range(20, 40)]
        with serve():
            assert all(x.result(LONG) in (None, {}) for x in futures)
            waiting.result(LONG)
    assert all(len({*values}) == 1 for values in calls.values())
    assert [values[0] for values in calls.values()] == list(range(40))


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(once, 'REPLIES', 2)
    monkeypatch.setattr(once, 'CLIENTS', 3)
    monkeypatch.setattr(once, 'BYTES', 100)
    table = once.Executed()

    def run(client, number, parts=(b'reply',)):
        ident = frames.RequestId(client, number)
        state, stored = table.begin(ident, 'add', Waiter())
        if state == once.NEW:
            table.end(ident, 'add', 0, parts)
        return stored

    for number in range(4):
        assert run(A, number) is None
    assert [run(A, n) for n in range(4)] == [(0, once.ACKNOWLEDGED)] * 2 + [(0, b'reply')] * 2
    assert run(A, 9, (b'x' * 200,)) is None
    assert [run(A, n) for n in (3, 9)] == [(0, once.ACKNOWLEDGED), (0, b'x' * 200)]
    assert run(A, 10) is None
    assert [run(A, n) for n in (9, 10)] == [(0, once.ACKNOWLEDGED), (0, b'reply')]
    for index in range(3):
        run(bytes([index]) * 16, 0)
    assert len(table._entries) == 3
    assert run(A, 0) is None  # forgotten: the client was silent while three others called


def test_who_waits_for_a_running_request_is_bounded(monkeypatch):
    monkeypatch.setattr(once, 'WAITING', 3)
    table, ident = once.Executed(), frames.RequestId(A, 0)
    waiters = [Waiter() for _ in range(5)]
    gone = Waiter(closed=True)
    for each in [waiters[0], gone, *waiters[1:]]:
        table.begin(ident, 'add', each)
    assert table.end(ident, 'add', 0, [b'']) == waiters[2:]


@pytest.fixture
def restless():
    """Threads that take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_order_of_numbers_is_order_of_sending(restless):
    """So that the last number of a client tells which requests came before it."""
    numbers, count = [], 60
    with serving(once=('add',), add=lambda: None) as (server, _):
        begin = server.executed.begin
        server.executed.begin = lambda x, *rest: numbers.append(x.number) or begin(x, *rest)
        with rpc.Client(f'localhost:{server.port}', inflight=128) as client:
            work = lambda: [client.call('add') for _ in range(count)]
            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LONG)
            client.call('add').result(LONG)
    assert numbers == list(range(6 * count + 1))
