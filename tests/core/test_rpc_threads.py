"""What ends the thread of a client or of a server leaves nobody waiting."""

import threading

import pytest

from embodied.core import rpc
from tests.core.wire import LONG, script, serving

CLOSES = """
    import os, sys, threading
    from embodied.core import rpc

    # In a process of its own there is nothing else whose files this could close.
    client = rpc.Client(sys.argv[1])
    future = client.call('hang')
    assert client.connect(20)
    blocked = rpc.Client(sys.argv[1], inflight=1)
    blocked.call('hang')
    errors = []

    def call():
        try:
            blocked.call('hang')
        except rpc.Closed as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    os.closerange(3, 256)  # as a program does that becomes a daemon
    for fn in (lambda: future.result(20), lambda: client.call('hang').result(20)):
        try:
            fn()
        except rpc.Closed as error:
            print(error)
    thread.join(20)
    print(*errors)
    client.close()
"""


def test_whatever_ends_the_thread_of_a_client_fails_its_calls():
    free = threading.Event()
    with serving(hang=lambda: free.wait(LONG)) as (server, _):
        done = script(CLOSES, f'localhost:{server.port}')
        free.set()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    ended = [x for x in lines if 'thread of the client has ended (OSError: ' in x]
    assert len(ended) == 3, done


@pytest.mark.parametrize(
    'error', [OSError(9, 'Bad file descriptor'), SystemExit(3), KeyError(1)]
)
def test_no_error_of_the_thread_leaves_a_caller_waiting(monkeypatch, error):
    client = rpc.Client(rpc.fill('localhost:{auto}'))
    future = client.call('add')

    def fail():
        raise error

    monkeypatch.setattr(client._link, '_connect', fail)
    with pytest.raises(rpc.Closed, match=type(error).__name__):
        future.result(LONG)
    with pytest.raises(rpc.Closed, match='has ended'):
        client.call('add')
    client.close()


def test_whatever_ends_the_thread_of_a_server_is_told(capsys):
    with rpc.Server(rpc.fill('localhost:{auto}'), 'replay') as server:
        server.check()
        server._listener._waker._read, read = -1, server._listener._waker._read
        with rpc.Client(f'localhost:{server.port}') as client:
            assert client.connect(LONG)
            server._listener._waker.wake()
            server._listener._thread.join(LONG)
            with pytest.raises(OSError, match='Bad file descriptor'):
                server.check()
            while client.connected:
                threading.Event().wait(0.01)
        server._listener._waker._read = read
    assert '[replay] serves no more: OSError' in capsys.readouterr().out


def test_a_server_whose_files_were_closed_ends_all_the_same():
    done = script(
        """
        import os
        from embodied.core import rpc

        server = rpc.Server(rpc.fill('localhost:{auto}'), 'replay')
        server.bind('echo', lambda x: x)
        server.start()
        client = rpc.Client(f'localhost:{server.port}')
        assert client.call('echo', 'x').result(20) == 'x'
        server.check()
        os.closerange(3, 256)
        try:
            server.check()
        except OSError as error:
            print(error)
        server.close(0.1)
        client.close(0.1)
        print('end')
        """
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, 'end'), done
    assert 'Bad file descriptor' in done.stdout


def test_an_error_beside_a_handler_is_answered_and_ends_no_thread(monkeypatch):
    with serving(once=('add',), add=lambda x: x) as (server, client):
        with monkeypatch.context() as full:
            full.setattr(server.executed, 'begin', lambda *args: bytes(-1))
            with pytest.raises(rpc.RemoteError, match='ValueError'):
                client.call('add', 'x').result(LONG)
        assert client.call('add', 'y').result(LONG) == 'y'
