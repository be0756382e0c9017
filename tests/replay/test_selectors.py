"""Selectors and the ring under them, against plain lists."""

import collections

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied.replay.ring import Ring

STEPIDS = np.zeros((3, 20), np.uint8)
OPS = st.lists(st.sampled_from(['append', 'append', 'pop', 'remove']), max_size=90)


@hypothesis.given(ops=OPS, data=st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_ring_equals_a_list(ops: list[str], data):
    ring, model = Ring(), []
    for count, op in enumerate(ops):
        if op == 'append':
            ring.append(count)
            model.append(count)
        elif op == 'pop' and model:
            assert ring.popleft() == model.pop(0)
        elif op == 'remove' and model:
            value = data.draw(st.sampled_from(model))
            ring.remove(value)
            model.remove(value)
        assert len(ring) == len(model)
        assert ring.values().tolist() == model
        assert [ring[i] for i in range(len(ring))] == model


def test_ring_refuses_what_is_not_there():
    ring = Ring()
    with pytest.raises(IndexError):
        ring.popleft()
    ring.append(5)
    for place in (-1, 1):
        with pytest.raises(IndexError):
            ring[place]
    with pytest.raises(KeyError):
        ring.remove(4)


@pytest.mark.parametrize('make', [embodied.selectors.Fifo, embodied.selectors.Uniform])
def test_keys_come_and_go(make):
    selector = make()
    for key in (7, 3, 9):
        selector[key] = STEPIDS
    del selector[3]
    assert len(selector) == 2
    assert {selector() for _ in range(50)} <= {7, 9}
    selector.prioritize(STEPIDS, np.ones(3))
    with pytest.raises(KeyError):
        del selector[3]


def test_fifo_picks_the_oldest_until_it_leaves():
    selector = embodied.selectors.Fifo()
    for key in (5, 2, 8):
        selector[key] = STEPIDS
    assert [selector(), selector()] == [5, 5]
    del selector[5]
    assert selector() == 2


def test_uniform_picks_all_items_alike():
    selector = embodied.selectors.Uniform(seed=0)
    for key in range(20):
        selector[key] = STEPIDS
    for key in range(10):
        del selector[key]
    count = 20_000
    counts = collections.Counter(selector() for _ in range(count))
    assert counts.keys() == set(range(10, 20))
    # Pearson's statistic with 9 degrees of freedom exceeds 33.7 once in 10,000.
    expected = count / 10
    assert sum((x - expected) ** 2 / expected for x in counts.values()) < 33.7


def test_uniform_follows_its_seed():
    def draws(seed: int) -> list[int]:
        selector = embodied.selectors.Uniform(seed)
        for key in range(100):
            selector[key] = STEPIDS
        return [selector() for _ in range(20)]

    assert draws(1) == draws(1) != draws(2)
