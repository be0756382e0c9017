"""The limiter against its definition, its recorded trace, and waiting threads."""

import pathlib
import threading

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied.replay import limiters

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'


def test_recorded_trace():
    limiter = embodied.limiters.SamplesPerInsert(0.5, tolerance=8, minsize=20)
    trace = np.load(GOLDEN / 'components.npz')['limiter/trace']
    assert len(trace) == 400
    for wish, want_insert, want_sample, done, size, avail in trace.tolist():
        assert limiter.want_insert() == bool(want_insert)
        assert limiter.want_sample() == bool(want_sample)
        if done == 0:
            limiter.insert()
        elif done == 1:
            limiter.sample()
        assert done == -1 or (wish == 2) == (done == 1)
        assert (limiter.size, limiter.avail) == (size, avail)


@hypothesis.given(
    ratio=st.sampled_from([-1.0, 0.0, 0.25, 1.0, 3.0]),
    tolerance=st.sampled_from([0.0, 1.0, 5.0]),
    minsize=st.integers(1, 10),
    wishes=st.lists(st.booleans(), max_size=60),
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_definition(ratio: float, tolerance: float, minsize: int, wishes: list[bool]):
    limiter = limiters.SamplesPerInsert(ratio, tolerance, minsize)
    inserts = samples = 0
    for insert in wishes:
        avail = -minsize + ratio * max(0, inserts - minsize + 1) - samples
        full = inserts >= minsize
        want_insert = not full or ratio <= 0 or avail < tolerance * ratio
        want_sample = full and ratio != 0 and (ratio < 0 or avail > -tolerance)
        assert limiter.want_insert() == want_insert
        assert limiter.want_sample() == want_sample
        if insert and want_insert:
            limiter.insert()
            inserts += 1
        elif not insert and want_sample:
            limiter.sample()
            samples += 1


@pytest.mark.parametrize('ratio', [0.5, 1.0, 4.0])
def test_ratio_is_met_from_the_first_sample_on(ratio: float):
    limiter = limiters.SamplesPerInsert(ratio, tolerance=2, minsize=40)
    inserts = samples = first = 0
    while samples < 1000:
        if limiter.want_sample():
            first = first or inserts
            limiter.sample()
            samples += 1
        else:
            assert limiter.want_insert()
            limiter.insert()
            inserts += 1
    assert first > 40
    assert abs(samples - ratio * (inserts - first)) <= 3 * (1 + ratio)


def test_saved_counts_go_on_with_other_settings():
    limiter = limiters.SamplesPerInsert(1, 2, 3)
    for _ in range(7):
        limiter.insert()
    limiter.sample()
    assert limiter.save() == {'size': 7, 'avail': 1}
    other = limiters.SamplesPerInsert(2, 2, 3)
    other.load(limiter.save())
    other.insert()
    assert other.save() == {'size': 8, 'avail': 3}


@pytest.mark.parametrize(('tolerance', 'minsize'), [(-1, 5), (1, 0)])
def test_settings_that_mean_nothing_are_refused(tolerance: float, minsize: int):
    with pytest.raises(ValueError, match=r'minsize .* tolerance'):
        limiters.SamplesPerInsert(1, tolerance, minsize)


def test_waiting_sampler_is_woken_by_the_insert():
    limiter = limiters.SamplesPerInsert(1, tolerance=1, minsize=1)
    barrier = threading.Barrier(2)
    result = []

    def sample() -> None:
        barrier.wait()
        result.append(limiter.wait_sample())

    thread = threading.Thread(target=sample)
    thread.start()
    barrier.wait()
    limiter.insert()  # avail is 0 now, above -1
    thread.join()
    assert result == [True]


def test_waiting_inserter_is_woken_by_the_sample():
    limiter = limiters.SamplesPerInsert(1, tolerance=1, minsize=1)
    limiter.load({'size': 1, 'avail': 1})
    assert not limiter.want_insert()
    result = []
    thread = threading.Thread(target=lambda: result.append(limiter.wait_insert()))
    thread.start()
    limiter.sample()
    thread.join()
    assert result == [True]


def test_two_threads_keep_each_other_in_step():
    limiter = limiters.SamplesPerInsert(1, tolerance=2, minsize=1)
    balance = []

    def inserter() -> None:
        for _ in range(300):
            limiter.wait_insert()
            limiter.insert()

    thread = threading.Thread(target=inserter)
    thread.start()
    for _ in range(298):
        limiter.wait_sample()
        limiter.sample()
        balance.append(limiter.avail)
    thread.join()
    assert limiter.size == 300
    assert min(balance) >= -2
    assert max(balance) <= 2


def test_wait_gives_up_after_its_timeout(capsys):
    limiter = limiters.SamplesPerInsert(1, tolerance=1, minsize=1)
    assert limiter.wait_sample(timeout=0) is False
    assert limiter.wait_insert(timeout=0) is True
    assert capsys.readouterr().out == ''


def test_long_wait_says_what_it_waits_for(capsys):
    asked = []

    def ready() -> bool:
        asked.append(len(asked))
        return len(asked) > 5

    condition = threading.Condition()
    with condition:
        assert limiters.wait(condition, ready, 'more data', notice=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert set(lines) == {'Waiting for 0 s: more data'}
    assert limiters.NOTICE == 60
