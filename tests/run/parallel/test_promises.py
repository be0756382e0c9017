"""The table of docs/parallel.md: what a replay server promises, with and without a secret, and
with both kinds of storage.
"""

import contextlib

import numpy as np
import pytest

from embodied.core import rpc
from tests.core.wire import GREETING, LONG, Cable, Peer, request
from tests.run.parallel.test_parallel import start, stored  # noqa: F401

SECRET = 'correct-horse-battery'
DONE, REFUSED = 0, 5

pytestmark = [
    pytest.mark.parametrize('storage', ['ram', 'disk']),
    pytest.mark.parametrize('secret', ['', SECRET], ids=['open', 'secret']),
]


@pytest.fixture
def serve(start, tmp_path, monkeypatch, secret, storage):  # noqa: F811
    """Starts replay servers of one run, on one port."""
    monkeypatch.setenv('DREAMER_SECRET', secret)
    flags = {
        'replay_addr': rpc.fill('localhost:{auto}'),
        'logger_addr': rpc.fill('localhost:{auto}'),
        'storage': storage, 'train_ratio': -1.0, 'save_every': 1e9,
    }  # fmt: skip

    def serve(files=None):
        return start('replay', tmp_path / 'run', files=files, **flags)

    serve.port, serve.rows = (
        rpc.split(flags['replay_addr'])[1],
        lambda: stored(tmp_path / 'run')[:, -1].tolist(),
    )
    return serve


def transition(step):
    """One step of one environment."""
    one = lambda value, dtype: np.full(1, value, dtype)
    return {
        'envid': one(0, np.int32), 'is_eval': one(False, bool), 'reward': one(0, np.float32),
        'is_first': one(step == 0, bool), 'is_last': one(False, bool),
        'is_terminal': one(False, bool), 'life': one(1, np.int32), 'env': one(0, np.int32),
        'episode': one(0, np.int32), 'step': one(step, np.int32),
    }  # fmt: skip


def add(client, steps):
    """Have steps stored and acknowledged."""
    for future in [client.call('add_batch', transition(step)) for step in steps]:
        future.result(LONG)


def test_what_is_left_after_a_kill(serve, storage):
    """On disk all that was acknowledged; of memory what was saved; and nothing twice."""
    with rpc.Client(f'localhost:{serve.port}', server='replay') as client:
        part = serve()
        add(client, range(30))
        part.stop()
        part = serve()
        add(client, range(30, 40))
        part.process.kill()
        part.process.wait()
    assert sorted(serve.rows()) == list(range(40 if storage == 'disk' else 30))


def test_a_call_that_comes_again_after_a_cut_is_executed_once(serve):
    part = serve()
    with Cable(serve.port) as cable, rpc.Client(f'localhost:{cable.port}') as client:
        add(client, range(5))
        for first in range(5, 20, 5):
            futures = [client.call('add_batch', transition(first + i)) for i in range(5)]
            cable.cut()
            for future in futures:
                future.result(LONG)
    part.stop()
    assert sorted(serve.rows()) == list(range(20))


def test_who_may_have_requests_executed(serve, secret):
    """Others than parts of the run: a plain client, and whoever has recorded one of ours."""
    part = serve()
    with Cable(serve.port) as cable, rpc.Client(f'localhost:{cable.port}') as client:
        add(client, range(12))
        client.call('sample_batch_train').result(LONG)
        ((_, recorded),) = cable.recorded
    with Peer(serve.port, b'') as peer:
        peer.sock.sendall(recorded)
        played, rest = [], recorded[len(GREETING) :]
        while rest:
            played.append(peer.exchange(b'')[0])
            rest = rest[8 + int.from_bytes(rest[:8], 'little') :]
    with Peer(serve.port) as peer:
        plain = [peer.exchange(request('add_batch', transition(20)))[0] for _ in range(2)]
        plain.append(peer.exchange(request('sample_batch_train'))[0])
    part.stop()
    # Without a secret recorded steps have their numbers, and those of a plain client have none.
    assert played[-13:] == [REFUSED if secret else DONE] * 13
    assert plain == [REFUSED if secret else DONE] * 3
    assert sorted(serve.rows()) == [*range(12), *([] if secret else [20, 20])]


def test_connections_that_ask_for_nothing_change_nothing(serve):
    part = serve(files=128)
    with contextlib.ExitStack() as held:
        client = held.enter_context(rpc.Client(f'localhost:{serve.port}'))
        add(client, range(6))
        for index in range(140):
            peer = held.enter_context(Peer(serve.port, b''))
            data = (b'', GREETING, GREETING + (2**30).to_bytes(8, 'little') + bytes(1000))
            with contextlib.suppress(OSError):
                peer.sock.sendall(data[index % 3])
        add(client, range(6, 12))
        client.call('sample_batch_train').result(LONG)
        part.stop()
    assert sorted(serve.rows()) == list(range(12))
    assert 'file descriptors' not in part.text
