"""Streams that go on after a load: as if there had been no stop."""

import errno
import itertools

import numpy as np
import pytest

import embodied
from embodied.core import serial
from embodied.replay import files, selectors


def make(path, length=4, chunksize=6, **kwargs):
    return embodied.Replay(length, directory=path, chunksize=chunksize, **kwargs)


def add(replay, numbers, workers=(0, 1)):
    for number, worker in itertools.product(numbers, workers):
        step = {'x': np.int32(number + 1000 * worker), 'is_first': np.bool_(number % 5 == 0)}
        replay.add(step, worker)


def sequences(replay):
    """All items as tuples, sorted."""
    spans = [replay._span(replay._first + i) for i in range(len(replay))]
    parts = [[arrays['x'][a:b] for arrays, a, b in span] for span in spans]
    return sorted(tuple(np.concatenate(x).tolist()) for x in parts)


@pytest.mark.parametrize('storage', ['ram', 'disk'])
@pytest.mark.parametrize('length', [1, 2, 4, 15])
@pytest.mark.parametrize('stops', [[20], [6, 12], [17, 18, 19, 37]])
def test_items_are_those_of_one_run(tmp_path, storage, length, stops):
    whole = make(tmp_path / 'whole', length)
    add(whole, range(50))
    replay, start = make(tmp_path / 'parts', length, storage=storage), 0
    for stop in [*stops, 50]:
        add(replay, range(start, stop))
        data, start = replay.save(), stop
        replay = make(tmp_path / 'parts', length, storage=storage)
        replay.load(data)
        assert sorted(replay.save()['streams']) == sorted(data['streams']) or stop < length
    if stops[0] >= length:
        assert sequences(replay) == sequences(whole)
    else:  # what held no item was not read back
        assert set(sequences(replay)) < set(sequences(whole))


def test_the_online_queue_keeps_its_rhythm(tmp_path):
    first = make(tmp_path, 4, online=True)
    add(first, range(10), workers=[0])
    data = first.save()
    second = make(tmp_path, 4, online=True)
    second.load(data)
    add(second, range(10, 20), workers=[0])
    batch = second.sample(3)['x'].tolist()
    assert batch == [[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]


def test_steps_after_the_last_save_of_the_run_are_part_of_it(tmp_path):
    """Files may be newer than the checkpoint: the stream goes on from its end."""
    first = make(tmp_path)
    add(first, range(8))
    data = first.save()
    add(first, range(8, 16))
    first.save()
    second = make(tmp_path)
    second.load(data)
    add(second, range(16, 20))
    assert len(second) == 2 * (20 - 3)


def test_other_workers_and_streams_that_are_gone_begin_anew(tmp_path):
    first = make(tmp_path)
    add(first, range(10))
    data = first.save()
    second = make(tmp_path)
    second.load({**data, 'streams': [[0, bytes(16), 10], *data['streams'][1:]]})
    add(second, range(10, 20), workers=(0, 1, 2))
    assert len(second) == 2 * 7 + 7 + 10 + 7
    make(tmp_path).load({'items': 3})  # of a version without streams


def test_capacity_and_eviction_after_a_load(tmp_path):
    first = make(tmp_path, capacity=20)
    add(first, range(30))
    data = first.save()
    second = make(tmp_path, capacity=20)
    second.load(data)
    for number in range(30, 90):
        add(second, [number])
        assert len(second) == 20
    assert sequences(second)[0] == (77, 78, 79, 80)
    assert len(second._storage) <= 2 * 4
    second.save()
    third = make(tmp_path, capacity=20)
    third.load()
    assert len(third) == 20


@pytest.mark.parametrize('fracs', [(1, 0, 0), (0.4, 0.3, 0.3)])
def test_draws_go_on(tmp_path, fracs):
    """As if there had been no stop; also through the format of checkpoints."""

    def new():
        shares = dict(zip(('uniform', 'priority', 'recency'), fracs, strict=True))
        prio = {'exponent': 0.8, 'maxfrac': 0.5, 'initial': 1.0, 'zero_on_sample': False}
        return make(tmp_path, selector=selectors.make(shares, prio, 1.0, seed=3))

    first = new()
    add(first, range(40), workers=[0])
    for mode in ('train', 'report', 'eval'):
        first.sample(7, mode)
    second = new()
    second.load(serial.unpack(*serial.pack(first.save())))
    for mode in ('train', 'report', 'eval'):
        wanted = first.sample(9, mode)['x']
        np.testing.assert_array_equal(second.sample(9, mode)['x'], wanted)


def test_other_generators_than_saved_draw_anew(tmp_path):
    first = make(tmp_path)
    add(first, range(10))
    data = first.save()
    second = make(tmp_path, selector=selectors.Fifo())
    second.load(data)
    assert second.sample(1)['x'].shape == (1, 4)


def test_a_save_that_failed_is_made_up_for(tmp_path, monkeypatch):
    replay, write = make(tmp_path), files.write

    def full(*args):
        raise OSError(errno.ENOSPC, 'No space left on device')

    add(replay, range(10))
    monkeypatch.setattr(files, 'write', full)
    with pytest.raises(OSError, match='No space'):
        replay.save()
    monkeypatch.setattr(files, 'write', write)
    other = make(tmp_path)
    other.load(replay.save())
    assert sequences(other) == sequences(replay)
