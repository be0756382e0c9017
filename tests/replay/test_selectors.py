"""Selectors and the ring under them, against plain lists."""

import collections

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied.replay.places import Places
from embodied.replay.ring import Ring
from tests.replay.naive import Naive, NaiveMixture, NaivePrioritized, NaiveRecency

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


# Frequencies. All draws have fixed seeds; a bound is exceeded by chance once in 10,000.


def ids(stream: int, first: int, count: int) -> np.ndarray:
    """The ids of consecutive steps, ten of which make a chunk."""
    steps = [(stream, n // 10, n % 10) for n in range(first, first + count)]
    raw = b''.join(bytes([s, c]) + bytes(14) + i.to_bytes(4, 'big') for s, c, i in steps)
    return np.frombuffer(raw, np.uint8).reshape(count, 20)


def chi_square(counts: collections.Counter, probs: dict) -> None:
    """Counts agree with probabilities, and what has none was never drawn."""
    total = sum(counts.values())
    likely = {key: prob for key, prob in probs.items() if prob * total >= 5}
    assert all(probs[key] > 0 for key in counts)
    statistic = sum((counts[k] - p * total) ** 2 / (p * total) for k, p in likely.items())
    rest = sum(n for key, n in counts.items() if key not in likely)
    expected = total * max(0.0, 1 - sum(likely.values()))
    assert abs(rest - expected) <= 5 + 5 * expected**0.5
    df = max(1, len(likely) - 1)
    # The 0.9999 quantile of chi-square, after Wilson and Hilferty.
    assert statistic < df * (1 - 2 / (9 * df) + 3.72 * (2 / (9 * df)) ** 0.5) ** 3


def filled(selector, model, items: int = 60, length: int = 4, left: int = 20) -> None:
    """Insert items of three streams in turn, and remove the oldest."""
    for n in range(items + left):
        stepids = ids(n % 3, n // 3, length)
        selector[n] = stepids
        model.insert(n, stepids)
        if n >= items:
            del selector[n - items]
            model.remove(n - items)


@pytest.mark.parametrize('exponent', [0.0, 0.5, 1.0, 2.5])
def test_recency_falls_with_age(exponent: float):
    selector, model = embodied.selectors.Recency(exponent, seed=1), NaiveRecency(exponent)
    filled(selector, model)
    chi_square(collections.Counter(selector.draw(30_000)), model.probs())
    del selector[40]  # neither oldest nor newest
    model.remove(40)
    chi_square(collections.Counter(selector() for _ in range(5_000)), model.probs())


@pytest.mark.parametrize('initial', [np.inf, 0.7, 0.0])
@pytest.mark.parametrize('exponent', [0.5, 1.0, 2.0])
@pytest.mark.parametrize('maxfrac', [0.0, 0.5, 1.0])
def test_priorities_decide(initial: float, exponent: float, maxfrac: float):
    selector = embodied.selectors.Prioritized(exponent, initial, False, maxfrac, seed=2)
    model = NaivePrioritized(exponent, initial, False, maxfrac)
    filled(selector, model)
    for known in (0, 5, 100):  # nothing known, some steps known, all steps known
        rng = np.random.default_rng(known)
        for stream in range(3):
            stepids, priorities = ids(stream, 0, known), rng.exponential(size=known)
            selector.prioritize(stepids, priorities)
            model.prioritize(stepids, priorities)
        chi_square(collections.Counter(selector.draw(10_000)), model.probs())
    assert all(model.probs().values())


def test_unseen_items_come_before_all_seen():
    selector = embodied.selectors.Prioritized(zero_on_sample=True, seed=0)
    for n in range(10):
        selector[n] = ids(n, 0, 3)
    for n in range(10):
        selector.prioritize(ids(n, 0, 3), [1e9, 1e9, 1e9 if n % 2 else np.inf])
    assert set(selector.draw(5)) == {0, 2, 4, 6, 8}
    assert set(selector.draw(5)) == {1, 3, 5, 7, 9}
    chi_square(  # all priorities are 0 now
        collections.Counter(selector.draw(5_000)), {n: 0.1 for n in range(10)}
    )


@pytest.mark.parametrize('batch', [1, 2, 7])
def test_zero_on_sample_acts_within_a_batch(batch: int):
    """The n-th draw of a batch follows the weights that the draws before it left."""
    counts = [collections.Counter() for _ in range(batch)]
    expected = [collections.Counter() for _ in range(batch)]
    rounds = 3000
    for seed in range(rounds):
        args = (0.8, np.inf, True, 0.5)
        selector = embodied.selectors.Prioritized(*args, seed=seed)
        model = NaivePrioritized(*args)
        for n in range(8):
            selector[n] = ids(0, n, 3)
            model.insert(n, ids(0, n, 3))
        priorities = [1, 0, 2, 0.5, 0, 3, 1, 1, 4, 0.1]
        selector.prioritize(ids(0, 0, 10), priorities)
        model.prioritize(ids(0, 0, 10), priorities)
        for place, key in enumerate(selector.draw(batch)):
            probs = model.probs()
            assert probs[key] > 0
            counts[place][key] += 1
            expected[place].update(probs)
            model.sampled(key)
    for seen, wanted in zip(counts, expected, strict=True):
        # Probabilities differ between rounds, which makes the counts vary less, not more.
        chi_square(seen, {key: value / rounds for key, value in wanted.items()})


def test_mixture_takes_from_each_in_proportion():
    fractions = {'uniform': 0.5, 'recency': 0.2, 'priority': 0.3, 'fifo': 0.0}
    parts = {
        'uniform': embodied.selectors.Uniform(1),
        'recency': embodied.selectors.Recency(1.0, 2),
        'priority': embodied.selectors.Prioritized(1.0, 0.1, maxfrac=0.3, seed=3),
        'fifo': embodied.selectors.Fifo(),
    }
    selector = embodied.selectors.Mixture(parts, fractions, seed=4)
    naive = [Naive(), NaiveRecency(1.0), NaivePrioritized(1.0, 0.1, False, 0.3)]
    model = NaiveMixture(naive, [0.5, 0.2, 0.3])
    filled(selector, model)
    priorities = np.random.default_rng(0).exponential(size=15)
    selector.prioritize(ids(0, 0, 15), priorities)
    model.prioritize(ids(0, 0, 15), priorities)
    chi_square(collections.Counter(selector.draw(20_000)), model.probs())
    chi_square(collections.Counter(selector() for _ in range(5_000)), model.probs())
    assert len(parts['fifo']) == 0


def test_sample_tree_follows_weights():
    tree, weights = embodied.selectors.SampleTree(seed=0), {}
    rng = np.random.default_rng(1)
    for n in range(1000):  # more than one level of sums
        weights[f'key{n}'] = rng.exponential() * (n % 3 > 0)
        tree.insert(f'key{n}', weights[f'key{n}'])
    for n in range(0, 1000, 4):
        tree.remove(f'key{n}')
        del weights[f'key{n}']
    for n in range(1, 1000, 16):
        weights[f'key{n}'] = 20.0
        tree.update(f'key{n}', 20.0)
    assert len(tree) == len(weights) == 750
    total = sum(weights.values())
    probs = {key: weight / total for key, weight in weights.items()}
    chi_square(collections.Counter(tree.draw(200_000)), probs)
    tree.insert(17, np.inf)
    tree.update('key3', np.inf)
    assert collections.Counter(tree.sample() for _ in range(100)).keys() == {17, 'key3'}
    for key in list(weights):
        tree.update(key, 0.0)
    tree.update(17, 0.0)
    assert len({tree.sample() for _ in range(300)}) > 150
    with pytest.raises(KeyError):
        tree.remove('key0')
    for weight in (-1.0, np.nan):
        with pytest.raises(ValueError, match='at least 0'):
            tree.insert('x', weight)


OPERATIONS = st.lists(
    st.sampled_from(
        ['stream'] * 6 + ['odd', 'oldest', 'any', 'prioritize', 'prioritize', 'draw']
    ),
    min_size=25,
    max_size=70,
)


@hypothesis.given(
    ops=OPERATIONS,
    length=st.integers(1, 5),
    initial=st.sampled_from([np.inf, 1.0]),
    zero=st.booleans(),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_weights_equal_the_naive_ones(ops, length, initial, zero, seed):
    """Whatever comes and goes, also items that overlap in odd ways or are removed anyhow."""
    args = (0.8, initial, zero, 0.5)
    selector = embodied.selectors.Prioritized(*args, seed=seed)
    model, rng = NaivePrioritized(*args), np.random.default_rng(seed)
    numbers, keys = [0, 0, 0], list(range(1000))
    for op in ops:
        stream = int(rng.integers(3))
        if op in ('stream', 'odd'):
            first, key = numbers[stream], keys.pop(0)
            numbers[stream] += 1
            stepids = ids(stream, first, length)
            if op == 'odd':  # steps of several streams in any order
                known = [ids(s, n, 1) for s in range(3) for n in range(4)]
                stepids = np.concatenate([known[i] for i in rng.integers(12, size=length)])
                if len({bytes(x) for x in stepids}) < length:
                    continue
            selector[key] = stepids
            model.insert(key, stepids)
        elif op == 'prioritize':
            chosen = ids(stream, int(rng.integers(20)), int(rng.integers(1, 12)))
            chosen = np.concatenate([chosen, ids(stream, 2, 3)])
            priorities = rng.exponential(size=len(chosen)) * (rng.random() < 0.9)
            selector.prioritize(chosen, priorities)
            model.prioritize(chosen, priorities)
        elif op == 'draw' and model.items:
            for key in selector.draw(int(rng.integers(1, 4))):
                assert model.probs()[key] > 0
                model.sampled(key)
        elif op in ('oldest', 'any') and model.items:
            key = list(model.items)[0 if op == 'oldest' else rng.integers(len(model.items))]
            del selector[key]
            model.remove(key)
        places = {key: selector._places.place(key) for key in model.items}
        assert len(selector) == len(model.items)
        got = {key: selector._tree[place] for key, place in places.items()}
        assert got == pytest.approx(model.weights(), abs=1e-12)
    if not model.items and selector._windows:
        assert not selector._windows._blocks
        assert not selector._windows._chunks
        assert not selector._windows._open


@hypothesis.given(
    ops=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=80), data=st.data()
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_places_equal_a_dict(ops, data):
    places, model, number = Places(), [], 0
    for insert, draw in ops:
        if insert:
            number += draw if draw < 9 else 10**6
            key = {7: f'x{number}', 8: -number}.get(draw, number)
            if key in model:
                continue
            assert places.add(key) == len(model)
            model.append(key)
        elif model:
            key = data.draw(st.sampled_from(model))
            hole = model.index(key)
            assert places.remove(key) == (hole, len(model) - 1)
            model[hole] = model[-1]
            model.pop()
        assert len(places) == len(model)
        assert [places.place(key) for key in model] == list(range(len(model)))
        assert list(places.keys(np.arange(len(model)))) == model
    for key in (10**9, 'none'):
        with pytest.raises(KeyError):
            places.place(key)


def test_invalid_settings_are_errors():
    made = embodied.selectors
    for make in (
        lambda: made.Prioritized(maxfrac=1.5),
        lambda: made.Prioritized(exponent=-1.0),
        lambda: made.Prioritized(initial=np.nan),
        lambda: made.Recency(-0.5),
        lambda: made.Mixture({'a': made.Fifo()}, {'a': 0.5}),
        lambda: made.Mixture({'a': made.Fifo()}, {'b': 1.0}),
    ):
        with pytest.raises(ValueError, match=r'maxfrac|exponent|at least|[Ff]ractions'):
            make()
    selector = made.Prioritized()
    selector[0] = ids(0, 0, 3)
    for bad in (-0.1, np.nan):
        with pytest.raises(ValueError, match='at least 0'):
            selector.prioritize(ids(0, 0, 1), [bad])
    with pytest.raises(ValueError, match='3 ids'):
        selector[1] = ids(0, 0, 4)


def test_config_makes_the_mixture():
    prio = {'exponent': 0.8, 'maxfrac': 0.5, 'initial': np.inf, 'zero_on_sample': True}
    fracs = {'uniform': 0.0, 'priority': 1.0, 'recency': 0.0}
    selector = embodied.selectors.make(fracs, prio, 1.0)
    for n in range(30):
        selector[n] = ids(n, 0, 2)
    assert len(set(selector.draw(30))) == 30  # unseen ones first, each once
    fracs = {'uniform': 0.0, 'priority': 0.0, 'recency': 1.0}
    selector = embodied.selectors.make(fracs, prio, 50.0)
    for n in range(30):
        selector[n] = ids(n, 0, 2)
    assert selector.draw(5) == [29] * 5
    fracs = {'uniform': 1.0, 'priority': 0.0, 'recency': 0.0}
    assert type(embodied.selectors.make(fracs, prio, 1.0)) is embodied.selectors.Uniform
