"""Batches on their way to the devices."""

import embodied
from embodied.jax.feed import DeviceFeed


class Numbers(embodied.Stream):
    """0, 1, 2, … and how many were asked for."""

    def __init__(self):
        self.count = 0

    def __next__(self):
        self.count += 1
        return self.count - 1

    def save(self):
        return self.count

    def load(self, state):
        self.count = state


def test_one_batch_is_fetched_ahead_and_none_is_lost():
    source, placed = Numbers(), []
    feed = DeviceFeed(source, lambda x: placed.append(x) or x)
    assert source.count == 0
    for i in range(4):
        assert next(feed) == i
        assert source.count == i + 2
    assert placed == [0, 1, 2, 3, 4]


def test_a_loaded_place_counts_for_the_next_batch():
    feed = DeviceFeed(Numbers(), lambda x: x)
    next(feed)
    state = feed.save()
    feed.load(10)
    assert next(feed) == 10
    assert state == 2
