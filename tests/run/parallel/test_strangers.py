"""A run whose ports are open to strangers: with a secret it goes on whatever they send."""

import contextlib
import struct

import pytest

from embodied.core import rpc
from tests.core.wire import GREETING, Peer, request
from tests.run.parallel.test_parallel import (  # noqa: F401
    all_ended,
    check_stored,
    latest,
    start,
    until,
)

METHODS = {
    'actor_addr': ('ident', 'act'),
    'replay_addr': (
        'add_batch', 'drain', 'update', 'sample_batch_train', 'sample_batch_report',
        'sample_batch_eval',
    ),
    'logger_addr': ('add', 'transitions', 'step'),
}  # fmt: skip
SILENCE = (b'', b'p', GREETING, GREETING + struct.pack('<Q', 1000), GREETING + bytes(4))
REFUSED = 5


def attack(start, tmp_path, monkeypatch, files, connections, requests):  # noqa: F811
    """Hold connections to all three servers of a run, and send requests without proof."""
    monkeypatch.setenv('DREAMER_SECRET', 'correct-horse-battery')
    logdir, addrs = tmp_path / 'run', {x: rpc.fill('localhost:{auto}') for x in METHODS}
    part = start(steps=1e9, train_ratio=8.0, usage={'psutil': True}, files=files, **addrs)
    updates = lambda: latest(logdir, 'train/opt/updates')
    until(updates, 'training')
    with contextlib.ExitStack() as held:
        for name, methods in METHODS.items():
            port = rpc.split(addrs[name])[1]
            for index in range(connections):
                peer = held.enter_context(Peer(port, b''))
                with contextlib.suppress(OSError):
                    peer.sock.sendall(SILENCE[index % len(SILENCE)])
            with Peer(port) as peer:
                for index in range(requests):
                    method = methods[index % len(methods)]
                    assert peer.exchange(request(method, {}))[0] == REFUSED
        before = updates()
        until(lambda: updates() > before + 50, 'more training')
        assert part.process.poll() is None, part.text
        assert latest(logdir, 'usage/replay/psutil/proc_ram_gb') > 0
        assert 'lost the connection' not in part.text
    assert 'is restarted' not in part.stop()
    all_ended(logdir)
    check_stored(logdir, 100)


def test_a_run_goes_on_whatever_strangers_send(start, tmp_path, monkeypatch):  # noqa: F811
    attack(start, tmp_path, monkeypatch, files=128, connections=140, requests=300)


@pytest.mark.torture
def test_a_run_goes_on_whatever_many_strangers_send(start, tmp_path, monkeypatch):  # noqa: F811
    attack(start, tmp_path, monkeypatch, files=1024, connections=1100, requests=5000)
