"""A replay server that is killed under traffic: what it acknowledged is there, and once."""

import collections
import contextlib
import random
import threading
import time

import pytest

import embodied
from embodied.core import rpc
from tests.run.parallel.test_parallel import LIMIT, Part
from tests.run.parallel.test_service import transitions

ENVS = 4  # of which the last one is of evaluation
# Inserts wait for the limiter nearly all the time, or never.
RATIOS = {'waiting': 100.0, 'inserting': -1.0}


class Traffic:
    """Inserts and samples as fast as the server lets it; notes what was acknowledged."""

    def __init__(self, addr):
        self.acknowledged = 0  # requests, of which each holds the next step of every env
        self.since = 0  # acknowledged before the server that runs now
        self._inserted = threading.Event()
        self._clients = [rpc.Client(addr) for _ in range(2)]
        self._threads = [threading.Thread(target=x) for x in (self._insert, self._sample)]
        for thread in self._threads:
            thread.start()

    def wait(self, more):
        """Wait until so many more requests are acknowledged."""
        goal, end = self.acknowledged + more, time.monotonic() + LIMIT
        while self.acknowledged < goal:
            assert time.monotonic() < end
            time.sleep(0.001)

    def stop(self):
        """Insert nothing more, and wait for all answers."""
        self._inserted.set()
        self._threads[0].join(LIMIT)
        assert not self._threads[0].is_alive()

    def close(self):
        self._inserted.set()
        for client in self._clients:
            client.close()
        for thread in self._threads:
            thread.join(LIMIT)

    def _insert(self):
        futures, is_eval = collections.deque(), [False] * (ENVS - 1) + [True]
        with contextlib.suppress(rpc.Closed):
            for step in range(10**9):
                if self._inserted.is_set():
                    break
                batch = transitions(range(ENVS), is_eval, step)
                futures.append(self._clients[0].call('add_batch', batch))
                while futures and futures[0].done():
                    self._acknowledge(futures.popleft())
            for future in futures:
                self._acknowledge(future)

    def _acknowledge(self, future):
        assert future.result(LIMIT) == {}
        self.acknowledged += 1

    def _sample(self):
        with contextlib.suppress(rpc.Closed):
            while True:
                self._clients[1].call('sample_batch_train').result()


def stored(logdir, folder, storage):
    """How often each (env, step) is in a replay."""
    replay = embodied.Replay(1, directory=logdir / folder, storage=storage)
    replay.load()
    spans = [replay._span(replay._first + i) for i in range(len(replay))]
    data = replay._storage.read(spans, 1)
    pairs = zip(data['env'].ravel().tolist(), data['step'].ravel().tolist(), strict=True)
    return collections.Counter(pairs)


@pytest.mark.parametrize('when', RATIOS)
@pytest.mark.parametrize(
    ('storage', 'kills'),
    [
        ('disk', 1),
        pytest.param('disk', 10, marks=pytest.mark.torture),
        pytest.param('ram', 10, marks=pytest.mark.torture),
    ],
)
def test_what_was_acknowledged_is_there_once(tmp_path, when, storage, kills):
    rng = random.Random(kills)
    addr = rpc.fill('localhost:{auto}')
    flags = {
        'replay_addr': addr, 'logger_addr': rpc.fill('localhost:{auto}'), 'eval_envs': 1,
        'storage': storage, 'train_ratio': RATIOS[when], 'save_every': 0.5, 'capacity': 10**6,
    }  # fmt: skip
    logdir = tmp_path / 'run'
    with contextlib.closing(Traffic(addr)) as traffic:
        for _ in range(kills):
            part = Part('replay', logdir, **flags)
            traffic.wait(rng.randrange(40, 120))
            part.process.kill()
            part.process.wait()
        traffic.since = traffic.acknowledged
        last = Part('replay', logdir, **flags)
        traffic.wait(20)
        traffic.stop()
    last.stop()
    lost = doubled = 0
    for folder, envs in (('replay', range(ENVS - 1)), ('replay_eval', [ENVS - 1])):
        found = stored(logdir, folder, storage)
        doubled += sum(count > 1 for count in found.values())
        # What a server in memory had not saved is lost, with what was under way.
        first = 0 if storage == 'disk' else traffic.since + 16
        steps = range(first, traffic.acknowledged)
        lost += sum((env, step) not in found for env in envs for step in steps)
        assert set(found) <= {(env, step) for env in envs for step in range(10**6)}
    print(f'{kills} kills, {traffic.acknowledged * ENVS} steps, {lost} lost, {doubled} twice')
    assert (lost, doubled) == (0, 0)
