"""Streams: order, places that can be saved, errors, and threads that end."""

import gc
import itertools
import threading
import traceback

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied import streams


class Count(embodied.Stream):
    """0, 1, 2, …, as a stream whose place is the next number."""

    def __init__(self, start: int = 0):
        self.next = start

    def __next__(self) -> int:
        self.next += 1
        return self.next - 1

    def save(self) -> int:
        return self.next

    def load(self, state: int) -> None:
        self.next = state


class Failing(Count):
    """Counts up to `end` and then raises."""

    def __init__(self, end: int, error: BaseException):
        super().__init__()
        self.end = end
        self.error = error

    def __next__(self) -> int:
        if self.next == self.end:
            self.raise_it()
        return super().__next__()

    def raise_it(self) -> None:
        raise self.error


def sequences(count: int, batch: int = 2) -> embodied.Stream:
    """Sequences of `count` steps: sequence n holds 1000 n + 100 row + step."""

    def make(number: int) -> dict:
        rows = 1000 * number + 100 * np.arange(batch)[:, None] + np.arange(count)
        return {'step': rows, 'pair': np.stack([rows, -rows], -1)}

    return streams.Map(Count(), make)


def take(stream: embodied.Stream, count: int) -> list:
    return list(itertools.islice(stream, count))


def test_stateless_calls_its_function():
    numbers = iter(range(10))
    stream = streams.Stateless(lambda: next(numbers))
    assert take(stream, 3) == [0, 1, 2]
    assert stream.save() is None
    stream.load(None)
    assert next(stream) == 3


def test_map_and_zip_keep_the_places_of_their_sources():
    stream = streams.Zip([streams.Map(Count(), lambda x: -x), Count(10)])
    assert take(stream, 2) == [(0, 10), (-1, 11)]
    state = stream.save()
    wanted = take(stream, 3)
    assert wanted == [(-2, 12), (-3, 13), (-4, 14)]
    stream.load(state)
    assert take(stream, 3) == wanted


def mixer(weights: dict, seed: int = 0) -> streams.Mixer:
    return streams.Mixer({'a': Count(), 'b': Count(1000), 'c': Count(10**6)}, weights, seed)


def test_mixer_draws_in_proportion_and_loses_nothing():
    got = np.array(take(mixer({'a': 1, 'b': 3, 'c': 0}), 2000))
    assert got[got < 1000].tolist() == list(range((got < 1000).sum()))
    assert got[got >= 1000].tolist() == list(range(1000, 1000 + (got >= 1000).sum()))
    assert got.max() < 10**6  # c never came
    assert abs((got < 1000).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 2000)


def test_mixer_goes_on_from_its_place_and_follows_its_seed():
    weights = {'a': 1, 'b': 1, 'c': 1}
    stream = mixer(weights)
    take(stream, 7)
    state, wanted = stream.save(), take(stream, 20)
    other = mixer(weights)
    other.load(state)
    assert take(other, 20) == wanted
    assert take(mixer(weights, seed=1), 27)[7:] != wanted


@pytest.mark.parametrize(
    'weights',
    [
        {'a': 1, 'b': 1},
        {'a': 0, 'b': 0, 'c': 0},
        {'a': 1, 'b': -1, 'c': 1},
        {'a': 1, 'b': np.nan, 'c': 1},
    ],
)
def test_mixer_refuses_weights_that_mean_nothing(weights: dict):
    with pytest.raises(ValueError, match=r'differ|Weights'):
        mixer(weights)


def test_consec_cuts_overlapping_chunks():
    stream = streams.Consec(sequences(7), length=2, consec=3, prefix=1)
    got = take(stream, 4)
    steps = [chunk['step'][0].tolist() for chunk in got]
    assert steps == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [1000, 1001, 1002]]
    assert got[1]['step'][1].tolist() == [102, 103, 104]
    assert got[1]['pair'][1].tolist() == [[102, -102], [103, -103], [104, -104]]
    for chunk, number in zip(got, [0, 1, 2, 0], strict=True):
        assert chunk['consec'].dtype == np.int32
        np.testing.assert_array_equal(chunk['consec'], np.full((2, 3), number))


def test_one_chunk_without_prefix_is_the_sequence():
    stream = streams.Consec(sequences(4), length=4)
    for chunk, sequence in zip(take(stream, 2), take(sequences(4), 2), strict=True):
        for key, value in sequence.items():
            np.testing.assert_array_equal(chunk[key], value)


@pytest.mark.parametrize(('steps', 'strict', 'fits'), [
    (5, True, True), (6, True, False), (6, False, True), (4, True, False), (4, False, False),
])  # fmt: skip
def test_strict_asks_for_exactly_the_steps(steps: int, strict: bool, fits: bool):
    stream = streams.Consec(sequences(steps), length=2, consec=2, prefix=1, strict=strict)
    if fits:
        assert [x['step'][0].tolist() for x in take(stream, 2)] == [[0, 1, 2], [2, 3, 4]]
    else:
        with pytest.raises(ValueError, match=f"'step' has {steps} steps instead of 5"):
            next(stream)


def test_contiguous_copies_each_chunk():
    whole = {'x': np.arange(12.0).reshape(2, 6)}
    for contiguous in (False, True):
        source = streams.Stateless(lambda: whole)
        stream = streams.Consec(source, 3, consec=2, contiguous=contiguous)
        chunks = [x['x'] for x in take(stream, 2)]
        assert [x.flags['C_CONTIGUOUS'] for x in chunks] == [contiguous] * 2
        assert [np.shares_memory(x, whole['x']) for x in chunks] == [not contiguous] * 2
        np.testing.assert_array_equal(chunks[1], [[3, 4, 5], [9, 10, 11]])


def test_consec_of_a_source_without_place_begins_a_new_sequence():
    numbers = iter(range(9))
    source = streams.Stateless(lambda: {'x': np.full((1, 4), next(numbers))})
    stream = streams.Consec(source, length=2, consec=2)
    take(stream, 3)
    stream.load(stream.save())
    assert [(x['x'][0, 0], x['consec'][0, 0]) for x in take(stream, 2)] == [(2, 0), (2, 1)]


@hypothesis.given(
    consec=st.integers(1, 3), prefix=st.integers(0, 2), amount=st.integers(1, 3),
    before=st.integers(0, 7), beyond=st.integers(0, 4),
)  # fmt: skip
@hypothesis.settings(max_examples=40, deadline=None)
def test_any_place_of_a_pipeline_is_kept(consec, prefix, amount, before, beyond):
    def build() -> streams.Prefetch:
        source = streams.Consec(sequences(2 * consec + prefix), 2, consec, prefix)
        return streams.Prefetch(
            source, lambda x: (x['step'].tolist(), x['consec'][0, 0]), amount
        )

    reference, stream = build(), build()
    wanted = take(reference, before + 6)[before:]
    take(stream, before)
    state = stream.save()
    take(stream, beyond)
    stream.load(state)  # in the same stream, over what was made ahead
    assert take(stream, 3) == wanted[:3]
    fresh = build()
    fresh.load(state)
    assert take(fresh, 6) == wanted
    for each in (reference, stream, fresh):
        each.close()


def test_prefetch_transforms_in_its_thread_and_keeps_the_order():
    threads = set()

    def transform(number: int) -> int:
        threads.add(threading.current_thread())
        return -number

    stream = streams.Prefetch(Count(), transform, amount=3)
    assert take(stream, 20) == [-x for x in range(20)]
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    stream.close()


def test_prefetch_makes_no_more_than_its_amount_ahead():
    full = threading.Semaphore(0)

    class Told(streams._Belt):
        def put(self, *args) -> None:
            super().put(*args)
            full.release()

    source = Count()
    belt = Told(2)
    thread = threading.Thread(target=streams._produce, args=(source, None, belt))
    thread.start()
    for _ in range(2):
        full.acquire()
    assert source.next == 2
    assert belt.take() == (0, 1)
    full.acquire()
    assert source.next == 3
    belt.close()
    thread.join()
    assert source.next == 3


def test_prefetch_place_counts_what_was_consumed():
    stream = streams.Prefetch(Count(), amount=3)
    assert stream.save() == 0
    assert take(stream, 5) == [0, 1, 2, 3, 4]
    assert stream.save() == 5
    stream.close()


@pytest.mark.parametrize('error', [RuntimeError('broken'), StopIteration(), SystemExit(3)])
def test_error_surfaces_after_the_batches_before_it(error: BaseException):
    stream = streams.Prefetch(streams.Map(Failing(2, error), lambda x: x), amount=5)
    assert [next(stream), next(stream)] == [0, 1]
    for _ in range(2):  # it stays
        with pytest.raises(type(error)) as info:
            next(stream)
        assert info.value is error
        frames = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
        assert 'raise_it' in frames
    stream.close()


def test_loading_recovers_from_an_error():
    source = Failing(2, RuntimeError('broken'))
    stream = streams.Prefetch(source)
    take(stream, 2)
    with pytest.raises(RuntimeError, match='broken'):
        next(stream)
    source.end = -1
    stream.load(1)
    assert take(stream, 2) == [1, 2]
    stream.close()


def test_failing_transform_surfaces():
    stream = streams.Prefetch(Count(), lambda x: 1 // (1 - x))
    assert next(stream) == 1
    with pytest.raises(ZeroDivisionError):
        next(stream)
    stream.close()


@pytest.mark.parametrize('amount', [1, 2])
def test_thread_ends_on_close(amount: int):
    stream = streams.Prefetch(Count(), amount=amount)
    take(stream, 3)
    thread = stream._thread
    stream.close()
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match='closed'):
        next(stream)


def test_thread_ends_with_its_stream():
    stream = streams.Prefetch(Count())
    take(stream, 3)
    thread = stream._thread
    del stream
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_unused_prefetch_starts_no_thread():
    before = threading.active_count()
    stream = streams.Prefetch(Count())
    stream.load(4)
    assert stream.save() == 4
    assert threading.active_count() == before
    stream.close()
