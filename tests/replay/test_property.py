"""The replay against a model made of plain lists, over random operations.

In the model a step is a dict that knows its worker and its number; an item is the list of its
steps. The only freedom left to the replay is which items samples pick, and after a load the
order of the items (see `Replay.load`), which the model then takes over.
"""

import itertools
import pathlib
import tempfile

import hypothesis
import numpy as np
from hypothesis import strategies as st

import embodied
from tests.replay.test_replay import all_starts

OPS = st.sampled_from(
    ['add'] * 5
    + ['batch'] * 3
    + ['sample', 'report', 'eval', 'update', 'update', 'save', 'load', 'restart', 'kill']
)
MIXTURE = {
    'fracs': {'uniform': 0.2, 'priority': 0.6, 'recency': 0.2},
    'prio': {'exponent': 0.8, 'maxfrac': 0.5, 'initial': np.inf, 'zero_on_sample': True},
    'recexp': 1.0,
}


class Model:
    """What the replay should hold."""

    def __init__(self, length: int, capacity: int | None, online: bool):
        self.length, self.capacity, self.online = length, capacity, online
        self.steps: dict[tuple[int, int], dict] = {}  # by worker and number: all of them
        self.numbers: dict[int, int] = {}  # steps of each worker so far
        self.streams: dict[int, list[dict]] = {}  # since the last restart
        self.items: list[list[dict]] = []
        self.queue: list[list[dict]] = []

    def add(self, worker: int, first: bool, last: bool) -> dict:
        number = self.numbers.get(worker, 0)
        self.numbers[worker] = number + 1
        step = {'env': worker, 'step': number, 'is_first': first, 'is_last': last, 'value': 0}
        self.steps[worker, number] = step
        stream = self.streams.setdefault(worker, [])
        stream.append(step)
        if len(stream) >= self.length:
            item = stream[-self.length :]
            self.items.append(item)
            if self.online and len(stream) % self.length == 0:
                self.queue.append(item)
        if self.capacity and len(self.items) > self.capacity:
            left = self.items.pop(0)
            if self.queue and self.queue[0] is left:
                self.queue.pop(0)
        return step

    def restart(self, order: list[tuple[int, int]]) -> None:
        """Take over the items that were loaded, by worker and number of their first step."""
        self.streams, self.queue = {}, []
        self.items = [
            [self.steps[worker, number + i] for i in range(self.length)]
            for worker, number in order
        ]

    def check(self, data: dict, row: int) -> list[dict]:
        """Check one sampled sequence against the item it must be, and return that."""
        key = data['env'][row, 0], data['step'][row, 0]
        (item,) = [x for x in self.items if (x[0]['env'], x[0]['step']) == key]
        for name in ('env', 'step', 'value'):
            assert data[name][row].tolist() == [step[name] for step in item]
        first = [step['is_first'] for step in item]
        last = [a['is_last'] or b['is_first'] for a, b in itertools.pairwise(item)]
        assert data['is_first'][row].tolist() == [True, *first[1:]]
        assert data['is_last'][row].tolist() == [*last, item[-1]['is_last']]
        return item


def loaded(replay: embodied.Replay, model: Model, before: int) -> None:
    """Check what a load gave, where the oldest items may be others of the same age."""
    order = all_starts(replay)
    assert len(order) == before == len(set(order))
    if not model.capacity or before < model.capacity:
        assert set(order) == {(x[0]['env'], x[0]['step']) for x in model.items}
    model.restart(order)


@hypothesis.given(
    length=st.integers(1, 6),
    workers=st.integers(1, 3),
    capacity=st.one_of(st.none(), st.integers(1, 25)),
    chunksize=st.integers(1, 12),
    online=st.booleans(),
    storage=st.sampled_from(['ram', 'disk']),
    mixture=st.booleans(),
    ops=st.lists(st.tuples(OPS, st.integers(0, 2**16)), min_size=20, max_size=80),
)
@hypothesis.settings(max_examples=100, deadline=None)
def test_replay_equals_a_list(
    length, workers, capacity, chunksize, online, storage, mixture, ops
):
    with tempfile.TemporaryDirectory() as folder:

        def make() -> embodied.Replay:
            return embodied.Replay(
                length,
                capacity,
                pathlib.Path(folder),
                chunksize,
                online,
                embodied.selectors.make(**MIXTURE) if mixture else None,
                seed=1,
                storage=storage,
            )

        replay, model, known = make(), Model(length, capacity, online), {}
        for count, (op, draw) in enumerate(ops, 1):
            if op == 'add':
                for _ in range(1 + draw // 7 % 9):
                    step = model.add(draw % workers, draw % 11 == 0, draw % 13 == 0)
                    add(replay, step)
            elif op == 'batch':
                chosen = [x for x in range(workers) if draw >> x & 1]
                if draw % 7 == 0:
                    chosen = [*chosen, *chosen]  # a worker may be there twice
                steps = [model.add(x, draw % 11 == 0, draw % 13 == 0) for x in chosen]
                if steps:
                    add_batch(replay, steps)
            elif op in ('sample', 'report', 'eval') and model.items:
                sample(replay, model, known, 1 + draw % 4, op.replace('sample', 'train'))
            elif op == 'update' and known:
                update(replay, known, np.random.default_rng(draw), count)
            elif op == 'save':
                assert replay.save()['items'] == len(model.items)
            elif op == 'load':
                replay.load()
            elif op == 'restart' or (op == 'kill' and storage == 'disk'):
                if op == 'restart':
                    replay.save()
                replay = make()
                replay.load()
                loaded(replay, model, len(model.items))
            compare(replay, model)


def compare(replay: embodied.Replay, model: Model) -> None:
    """Check all items and their stored values, without sampling."""
    assert len(replay) == len(model.items)
    if model.items:
        spans = [replay._span(replay._first + i) for i in range(len(replay))]
        data = replay._storage.read(spans, replay.length)
        for name in ('env', 'step', 'is_first', 'is_last', 'value'):
            stored = [[step[name] for step in item] for item in model.items]
            assert data[name].tolist() == stored


def arrays_of(step: dict) -> dict:
    types = {'env': np.int32, 'step': np.int32, 'value': np.uint16}
    return {key: types.get(key, np.bool_)(value) for key, value in step.items()}


def add(replay: embodied.Replay, step: dict) -> None:
    replay.add(arrays_of(step), step['env'])


def add_batch(replay: embodied.Replay, steps: list[dict]) -> None:
    arrays = [arrays_of(step) for step in steps]
    batch = {key: np.stack([x[key] for x in arrays]) for key in arrays[0]}
    replay.add_batch(batch, [step['env'] for step in steps])


def sample(replay: embodied.Replay, model: Model, known: dict, batch: int, mode: str) -> None:
    """Sample, check every sequence, and learn the ids of its steps."""
    data = replay.sample(batch, mode)
    for row in range(batch):
        item = model.check(data, row)
        if mode == 'train' and model.queue:
            assert item is model.queue.pop(0)
        for stepid, step in zip(data['stepid'][row], item, strict=True):
            assert known.setdefault(bytes(stepid), step) is step


def update(replay: embodied.Replay, known: dict, rng, value: int) -> None:
    """Overwrite some steps that were seen, in any order, whether they left or not."""
    ids = list(known)
    chosen = rng.integers(len(ids), size=(2, 3))
    stepid = np.array([[np.frombuffer(ids[i], np.uint8) for i in row] for row in chosen])
    values = np.full((2, 3), value, np.uint16)
    priority = rng.exponential(size=(2, 3)).astype(np.float32)
    replay.update({'stepid': stepid, 'value': values, 'priority': priority})
    for i in chosen.flat:
        known[ids[i]]['value'] = value
