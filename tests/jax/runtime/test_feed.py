"""Batches on their way to the devices."""

import embodied
from embodied.jax.runtime.feed import DeviceFeed


class Numbers(embodied.Stream):
    """Batches that hold 0, 1, 2, … and how many were asked for."""

    def __init__(self):
        self.count = 0

    def __next__(self):
        self.count += 1
        return {'number': self.count - 1}

    def save(self):
        return self.count

    def load(self, state):
        self.count = state


def test_one_batch_is_fetched_while_the_devices_work_and_none_is_lost():
    source, placed = Numbers(), []
    feed = DeviceFeed(source, lambda x: placed.append(x['number']) or x)
    assert source.count == 0
    for i in range(4):
        batch = next(feed)
        assert batch == {'number': i}
        assert source.count == i + 1
        batch.meanwhile()
        assert source.count == i + 2
        batch.meanwhile()
        assert source.count == i + 2
    assert placed == [0, 1, 2, 3, 4]


def test_batches_come_without_one_ahead_where_nobody_asks_for_it():
    source = Numbers()
    feed = DeviceFeed(source, lambda x: x)
    assert [next(feed)['number'] for _ in range(3)] == [0, 1, 2]
    assert source.count == 3


def test_nothing_is_waited_for_while_the_devices_work():
    class Remote(Numbers):
        arrived = False

        def ready(self):
            return self.arrived

    source = Remote()
    feed = DeviceFeed(source, lambda x: x)
    batch = next(feed)
    batch.meanwhile()
    assert source.count == 1
    source.arrived = True
    batch.meanwhile()
    assert source.count == 2
    assert next(feed) == {'number': 1}


def test_a_loaded_place_counts_for_the_next_batch():
    feed = DeviceFeed(Numbers(), lambda x: x)
    next(feed).meanwhile()
    state = feed.save()
    feed.load(10)
    assert next(feed) == {'number': 10}
    assert state == 2
