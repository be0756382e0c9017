"""The replay used from several threads at once."""

import pathlib
import threading
from collections.abc import Callable

import numpy as np
import pytest

import embodied
from embodied.replay import files
from tests.replay.test_replay import all_starts, fill, starts, step


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads that start at the same moment; the first error is raised."""
    barrier = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            barrier.wait()
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check(data: dict) -> None:
    """Steps follow one another in one worker, and no step is half updated."""
    np.testing.assert_array_equal(data['step'], data['step'][:, :1] + np.arange(6))
    assert (data['env'] == data['env'][:, :1]).all()
    assert (data['latent'] == data['latent'][..., :1]).all()


PRIO = {'exponent': 0.8, 'maxfrac': 0.5, 'initial': np.inf, 'zero_on_sample': True}


@pytest.mark.parametrize('storage', ['ram', 'disk'])
@pytest.mark.parametrize('uniform', [1.0, 0.2])
def test_everything_at_the_same_time(tmp_path: pathlib.Path, storage: str, uniform: float):
    options = {'capacity': 300, 'directory': tmp_path, 'chunksize': 16, 'storage': storage}
    fracs = {'uniform': uniform, 'priority': 1 - uniform, 'recency': 0.0}
    selector = embodied.selectors.make(fracs, PRIO, 1.0)
    replay = embodied.Replay(length=6, online=True, selector=selector, **options)
    fill(replay, 20, workers=2)
    stats: list[dict] = [replay.stats()]

    def add(worker: int) -> Callable[[], None]:
        def job() -> None:
            for number in range(20, 600):
                replay.add(step(number, worker), worker)

        return job

    def sample(mode: str) -> Callable[[], None]:
        def job() -> None:
            for number in range(150):
                data = replay.sample(4, mode)
                check(data)
                latent = np.full((4, 6, 3), number, np.uint16)
                priority = np.full((4, 6), number % 9, np.float32)
                data = {'stepid': data['stepid'], 'latent': latent, 'priority': priority}
                replay.update(data)

        return job

    def save() -> None:
        for _ in range(20):
            replay.save()

    def count() -> None:
        for _ in range(50):
            stats.append(replay.stats())
            assert len(replay) <= 300

    together(add(0), add(1), sample('train'), sample('report'), save, save, count)
    stats.append(replay.stats())
    assert sum(x['inserts'] for x in stats) == 2 * (600 - 5)
    assert sum(x['samples'] for x in stats) == 2 * 150 * 4
    assert len(replay) == 300
    replay.save()
    again = embodied.Replay(length=6, **options)
    again.load()
    assert len(again) == 300
    check(again.sample(300))
    written = {chunk.file for chunk in replay._storage._chunks.values()}
    assert {path.name for path in tmp_path.iterdir()} == written


def test_sampling_an_empty_replay_waits_for_the_first_item():
    replay = embodied.Replay(length=3)
    got = []

    def sample() -> None:
        got.append(starts(replay.sample(1)))

    together(sample, lambda: fill(replay, 3))
    assert got == [[(0, 0)]]


class Gate:
    """Stops the thread that writes a file until it is told to go on."""

    def __init__(self, monkeypatch):
        self.reached, self.opened = threading.Event(), threading.Event()
        write = files.write

        def stop(*args) -> None:
            self.reached.set()
            assert self.opened.wait(60)
            write(*args)

        monkeypatch.setattr(files, 'write', stop)


def test_nothing_waits_for_the_disk(tmp_path: pathlib.Path, monkeypatch):
    replay = embodied.Replay(length=6, directory=tmp_path, chunksize=4)
    fill(replay, 30)
    gate = Gate(monkeypatch)
    saver = threading.Thread(target=replay.save)
    saver.start()
    assert gate.reached.wait(60)
    try:
        data = replay.sample(3)
        replay.update({'stepid': data['stepid'], 'latent': np.ones((3, 6, 3), np.uint16)})
        fill(replay, 10, start=30)
        assert replay.stats()['items'] == 35
    finally:
        gate.opened.set()
        saver.join()
    replay.save()
    again = embodied.Replay(length=6, directory=tmp_path)
    again.load()
    assert all_starts(again) == all_starts(replay)
    after = again.sample(100)
    assert (after['latent'][after['step'] == data['step'][0, 0]] == 1).all()


def test_chunk_that_leaves_while_it_is_written_leaves_no_file(tmp_path, monkeypatch):
    replay = embodied.Replay(length=2, capacity=5, directory=tmp_path, chunksize=4)
    fill(replay, 8)
    gate = Gate(monkeypatch)
    saver = threading.Thread(target=replay.save)
    saver.start()
    assert gate.reached.wait(60)
    fill(replay, 100, start=8)
    gate.opened.set()
    saver.join()
    replay.save()
    written = {chunk.file for chunk in replay._storage._chunks.values()}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert len(written) == replay.stats()['chunks'] == 2
