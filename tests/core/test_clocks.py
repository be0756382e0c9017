"""Clocks: intervals by a hand-moved time, repeats by exact counts."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied.core import clocks
from embodied.core.errors import UserError


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.value = 1000.0

    def __call__(self):
        return self.value


def test_every_fires_after_each_interval():
    now = Time()
    every = clocks.Every(10, now=now)
    fired = []
    for second in range(35):
        now.value = 1000.0 + second
        if every():
            fired.append(second)
    assert fired == [10, 20, 30]


def test_every_does_not_catch_up():
    now = Time()
    every = clocks.Every(10, now=now)
    now.value += 95
    assert [every() for _ in range(3)] == [True, False, False]
    now.value += 9
    assert not every()
    now.value += 1
    assert every()


def test_every_initial_fires_at_once():
    now = Time()
    every = clocks.Every(10, initial=True, now=now)
    assert [every(), every()] == [True, False]
    now.value += 10
    assert every()


@pytest.mark.parametrize(('seconds', 'expected'), [(0, False), (-1, True)])
def test_every_never_and_always(seconds, expected):
    now = Time()
    every = clocks.Every(seconds, initial=True, now=now)
    results = []
    for _ in range(3):
        results.append(every())
        now.value += 1e9
    assert results == [expected] * 3


@pytest.mark.parametrize(
    ('ratio', 'steps', 'expected'),
    [
        (Fraction(1), 100, 100),
        (Fraction(1, 32), 1_000_000, 31_250),
        (0.1, 10_000, 1000),
        (0.7, 10, 7),
        (8, 5, 40),
        (0, 1000, 0),
    ],
)
def test_ratio_counts_exactly(ratio, steps, expected):
    clock = clocks.Ratio(ratio)
    assert clock(500) == 0
    assert sum(clock(500 + n) for n in range(1, steps + 1)) == expected


def test_ratio_spreads_repeats_evenly():
    clock = clocks.Ratio(0.4)
    assert [clock(n) for n in range(11)] == [0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1]


def test_negative_ratio_repeats_once_per_call():
    clock = clocks.Ratio(-1)
    assert [clock(n) for n in (0, 0, 7, 3)] == [1, 1, 1, 1]


@settings(deadline=None, max_examples=50)
@given(
    st.fractions(0, 20, max_denominator=1000),
    st.lists(st.integers(0, 50), max_size=30),
)
def test_ratio_does_not_depend_on_the_calls(ratio, jumps):
    clock = clocks.Ratio(ratio)
    clock(3)
    step, total = 3, 0
    for jump in jumps:
        step += jump
        total += clock(step)
        assert total == math.floor(ratio * (step - 3))


def test_ratio_set_back_owes_nothing():
    clock = clocks.Ratio(2)
    clock(100)
    assert clock(90) == 0
    assert clock(91) == 2


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 60), st.fractions(0, 4, max_denominator=50))
def test_saved_ratio_goes_on_exactly(cut, ratio):
    whole, first, second = (clocks.Ratio(ratio) for _ in range(3))
    expected = sum(whole(n) for n in range(100))
    total = sum(first(n) for n in range(cut))
    second.load(first.save())
    total += sum(second(n) for n in range(cut, 100))
    assert total == expected


def test_changed_ratio_applies_from_the_resume_on():
    old, new = clocks.Ratio(0.5), clocks.Ratio(4)
    sum(old(n) for n in range(1000))
    new.load(old.save())
    assert [new(1000), new(1001)] == [4, 4]


def test_reset_starts_anew():
    clock = clocks.Ratio(1)
    clock(0)
    clock.reset()
    assert clock(1000) == 0
    assert clock(1001) == 1


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_ratio_that_is_not_finite_is_refused(value):
    with pytest.raises(UserError, match=r'finite.*train_ratio'):
        clocks.Ratio(value)


def test_repeats_that_were_not_done_stay_due():
    ratio = clocks.Ratio(2.5)
    assert ratio(0) == 0
    assert ratio(4) == 10
    ratio.give_back(7)
    again = clocks.Ratio(2.5)
    again.load(ratio.save())
    assert [again(4), again(5)] == [7, 2]
    for other in (clocks.Ratio(-1), clocks.Ratio(0)):
        before = other(0)
        other.give_back(before)
        assert other(0) == before
