"""Memory of chunks that is used again, and batches that share it."""

import gc

import numpy as np
import pytest

import embodied
from embodied.replay import blocks, selectors
from tests.replay.test_replay import all_starts, fill, step

SPEC = {'a': ((3,), np.dtype(np.float32)), 'b': ((), np.dtype(bool))}


def addresses(block: blocks.Block) -> list[int]:
    return [array.ctypes.data for array in block.arrays.values()]


def batch_of(number: int, workers: range) -> dict:
    rows = [step(number, worker) for worker in workers]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def test_memory_is_used_again_once_nothing_refers_to_it():
    pool = blocks.Blocks(5)
    pool.limit = 2
    block = pool.take(SPEC, 2)
    assert {key: x.shape for key, x in block.arrays.items()} == {'a': (2, 5, 3), 'b': (2, 5)}
    assert all(x % blocks.ALIGNMENT == addresses(block)[0] % 64 for x in addresses(block))
    before, part = addresses(block), block.row(1)['b'][2:4]
    part[:] = True
    del block
    other = pool.take(SPEC, 2)
    other.arrays['b'][:] = False
    assert addresses(other) != before
    assert part.all()
    del part
    gc.collect()
    assert addresses(pool.take(SPEC, 2)) == before


def test_no_more_memory_is_kept_than_workers_need():
    pool = blocks.Blocks(5)
    pool.limit = 2
    several = [pool.take(SPEC, rows) for rows in (1, 1, 1, 2, 3)]
    assert not pool._free
    while several:
        several.pop(0)
        assert sum(rows for rows, _ in pool._free) <= 2
    taken = pool.take(SPEC, 4)
    assert taken.arrays['a'].shape == (4, 5, 3)


def test_a_span_keeps_its_values_while_its_chunks_leave():
    replay = embodied.Replay(length=3, capacity=6, chunksize=4)
    for number in range(10):
        replay.add_batch(batch_of(number, range(2)), range(2))
    spans = [replay._span(replay._first + i) for i in range(len(replay))]
    before = replay._storage.read(spans, 3)
    for number in range(10, 60):
        replay.add_batch(batch_of(number, range(2)), range(2))
    after = replay._storage.read(spans, 3)
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value)
    assert len(replay) == 6
    assert sorted(all_starts(replay)) == [(w, n) for w in range(2) for n in (55, 56, 57)]


def test_a_long_run_takes_no_new_memory():
    replay = embodied.Replay(length=3, capacity=20, chunksize=4)
    seen = set()
    for number in range(400):
        replay.add_batch(batch_of(number, range(3)), range(3))
        seen |= {chunk.arrays['step'].ctypes.data for chunk in replay._storage._chunks.values()}
    # 20 items begin in 2 chunks of each worker at least; beside them those that are open.
    assert len(seen) <= 3 * 6


@pytest.mark.parametrize('workers', [[0, 1, 2], [2, 1, 0], [1], [0, 2], [2, 0, 1, 3]])
def test_batches_equal_single_steps_in_whatever_order(workers: list[int]):
    one, other = (embodied.Replay(length=3, capacity=50, chunksize=4) for _ in range(2))
    for number in range(6):
        for replay in (one, other):
            replay.add_batch(batch_of(number, range(3)), range(3))
    for number in range(6, 30):
        rows = [step(number, worker) for worker in workers]
        for row, worker in zip(rows, workers, strict=True):
            one.add(row, worker)
        other.add_batch({key: np.stack([x[key] for x in rows]) for key in rows[0]}, workers)
    assert all_starts(one) == all_starts(other)
    data = [replay.sample(100, 'report') for replay in (one, other)]
    for key in data[0].keys() - {'stepid'}:
        np.testing.assert_array_equal(data[0][key], data[1][key])


def test_a_batch_of_nobody_is_nothing():
    replay = embodied.Replay(length=1)
    replay.add_batch({'a': np.zeros((0, 3))}, [])
    assert len(replay) == 0
    fill(replay, 2)
    assert len(replay) == 2


def test_only_priorities_need_the_ids_of_steps():
    class Own(selectors.Uniform):
        """May look at whatever it is given."""

    fracs = {'uniform': 0.5, 'priority': 0.0, 'recency': 0.5}
    blind = selectors.make(fracs, {}, 1.0)
    seeing = selectors.make({**fracs, 'priority': 0.5, 'recency': 0.0}, {}, 1.0)
    others = selectors.Uniform(), selectors.Fifo(), selectors.Recency()
    assert not any(selectors.needs_ids(x) for x in (blind, *others))
    assert all(selectors.needs_ids(x) for x in (seeing, selectors.Prioritized(), Own()))
