"""The replay: what an item is, who is sampled, what is written, and what stays."""

import collections
import pathlib

import numpy as np
import pytest

import embodied
from embodied.replay import storage
from tests.doubles import CounterEnv, DoubleAgent


def step(number: int, worker: int = 0, first: bool = False, last: bool = False) -> dict:
    return {
        'step': np.int32(number),
        'env': np.int32(worker),
        'is_first': np.bool_(first),
        'is_last': np.bool_(last),
        'latent': np.full(3, number % 7, np.uint16),
        'log/step': np.float32(number),
    }


def fill(replay: embodied.Replay, steps: int, workers: int = 1, start: int = 0) -> None:
    for number in range(start, start + steps):
        for worker in range(workers):
            replay.add(step(number, worker, first=number == 0), worker)


def starts(data: dict) -> list[tuple[int, int]]:
    return list(zip(data['env'][:, 0].tolist(), data['step'][:, 0].tolist(), strict=True))


def all_starts(replay: embodied.Replay) -> list[tuple[int, int]]:
    """Return (worker, step) of every item, oldest first, without sampling."""
    spans = [replay._span(replay._first + i) for i in range(len(replay))]
    if not spans:
        return []
    return starts(replay._storage.read(spans, replay.length))


def test_an_item_exists_once_all_of_its_steps_are_in():
    replay = embodied.Replay(length=4)
    sizes = []
    for number in range(7):
        replay.add(step(number), worker=number % 2)
        sizes.append(len(replay))
    assert sizes == [0, 0, 0, 0, 0, 0, 1]  # worker 0 has 0, 2, 4, 6
    assert replay.sample(1)['step'].tolist() == [[0, 2, 4, 6]]


def test_samples_are_owned_contiguous_and_complete():
    replay = embodied.Replay(length=5, chunksize=3)
    fill(replay, 20, workers=2)
    data = replay.sample(6)
    assert data.keys() == {'step', 'env', 'is_first', 'is_last', 'latent', 'stepid'}
    shapes = {'latent': (6, 5, 3), 'stepid': (6, 5, 20)}
    for key, value in data.items():
        assert value.shape == shapes.get(key, (6, 5))
        assert value.flags['C_CONTIGUOUS']
        assert value.flags['OWNDATA']
        assert value.flags.writeable
    before = all_starts(replay)
    for value in data.values():
        value[:] = 0  # the caller's own
    assert all_starts(replay) == before


def test_stepids_are_chunk_and_big_endian_index():
    replay = embodied.Replay(length=7, chunksize=3)
    fill(replay, 7)
    ids = replay.sample(1)['stepid'][0]
    index = ids[:, 16:].copy().view('>u4')[:, 0]
    assert index.tolist() == [0, 1, 2, 0, 1, 2, 0]
    chunks = [bytes(x[:16]) for x in ids]
    assert list(collections.Counter(chunks).values()) == [3, 3, 1]


def test_first_step_is_first_and_abandoned_episodes_end():
    replay = embodied.Replay(length=5)
    flags = {1: {'first': True}, 3: {'first': True}, 4: {'last': True}}
    for number in range(5):
        replay.add(step(number, **flags.get(number, {})))
    data = replay.sample(1)
    assert data['is_first'].tolist() == [[True, True, False, True, False]]
    assert data['is_last'].tolist() == [[True, False, True, False, True]]
    spans = [replay._span(replay._first)]
    stored = replay._storage.read(spans, 5)  # what is stored did not change
    assert stored['is_first'].tolist() == [[False, True, False, True, False]]
    assert stored['is_last'].tolist() == [[False, False, False, False, True]]


def test_streams_without_episodes_sample_too():
    replay = embodied.Replay(length=2)
    for number in range(3):
        replay.add({'x': number})
    assert replay.sample(2)['x'].shape == (2, 2)


@pytest.mark.parametrize('chunksize', [1, 4, 50])
def test_oldest_items_leave_and_their_chunks_with_them(chunksize: int):
    replay = embodied.Replay(length=3, capacity=10, chunksize=chunksize)
    fill(replay, 100, workers=2)
    # Items of step n - 2 come as step n does, in turn for both workers.
    assert all_starts(replay) == [(w, n) for n in range(93, 98) for w in range(2)]
    # Steps of the items are 93 to 99; a chunk stays while one of its steps is needed.
    needed = 2 * len({n // chunksize for n in range(93, 100)})
    assert replay.stats()['chunks'] == needed
    assert len(replay._storage._by_uuid) == needed


def test_worker_that_falls_silent_keeps_only_its_open_chunk():
    replay = embodied.Replay(length=2, capacity=4, chunksize=3)
    fill(replay, 4, workers=2)
    for number in range(4, 50):
        replay.add(step(number, 0), worker=0)
    assert all_starts(replay) == [(0, n) for n in range(45, 49)]
    replay.add(step(4, 1), worker=1)  # goes on where it was
    assert all_starts(replay)[-1] == (1, 3)


@pytest.mark.parametrize('chunksize', [2, 100])
def test_online_sequences_come_first_and_once(chunksize: int):
    replay = embodied.Replay(length=3, chunksize=chunksize, online=True)
    fill(replay, 7, workers=2)
    wanted = [(0, 0), (1, 0), (0, 3), (1, 3)]
    replay.sample(5, 'report')
    replay.sample(5, 'eval')
    got = starts(replay.sample(3)) + starts(replay.sample(1))
    assert got == wanted
    fill(replay, 2, workers=2, start=7)
    assert starts(replay.sample(2)) == [(0, 6), (1, 6)]


def test_online_sequences_that_left_are_not_sampled():
    replay = embodied.Replay(length=2, capacity=3, online=True)
    fill(replay, 20)  # online: 0, 2, …, 18; items: 16, 17, 18
    assert all_starts(replay) == [(0, 16), (0, 17), (0, 18)]
    assert starts(replay.sample(2)) == [(0, 16), (0, 18)]
    assert not replay._online


def test_without_online_nothing_is_queued():
    first, second = (embodied.Replay(length=2, online=x, seed=3) for x in (False, True))
    for replay in (first, second):
        fill(replay, 30)
    assert starts(first.sample(15)) != starts(second.sample(15))
    assert first._online is None


def test_seed_decides_the_samples():
    def samples(seed: int) -> list:
        replay = embodied.Replay(length=2, seed=seed)
        fill(replay, 50)
        return [starts(replay.sample(4, mode)) for mode in ('train', 'report', 'eval', 'train')]

    first, second, third = samples(0), samples(0), samples(1)
    assert first == second
    assert all(a != b for a, b in zip(first, third, strict=True))
    assert first[0] != first[1] != first[2]


@pytest.mark.parametrize('mode', ['report', 'eval'])
def test_other_modes_change_nothing_in_training(mode: str):
    runs = []
    for interrupted in (False, True):
        replay = embodied.Replay(length=2, online=True, seed=0)
        fill(replay, 20)
        got = []
        for _ in range(8):
            got += starts(replay.sample(3))
            if interrupted:
                replay.sample(5, mode)
        runs.append(got)
    assert runs[0] == runs[1]


@pytest.mark.parametrize('mode', ['train', 'report', 'eval'])
def test_every_item_is_sampled_alike(mode: str):
    replay = embodied.Replay(length=2, capacity=20, chunksize=7)
    fill(replay, 40)
    counts = collections.Counter(starts(replay.sample(8000, mode)))
    assert counts.keys() == set(all_starts(replay))
    # Pearson's statistic with 19 degrees of freedom exceeds 51 once in 10,000.
    assert sum((x - 400) ** 2 / 400 for x in counts.values()) < 51


def batch_of(number: int, workers: list[int]) -> dict:
    steps = [step(number, worker, first=number == 0) for worker in workers]
    return {key: np.stack([x[key] for x in steps]) for key in steps[0]}


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_batch_is_one_step_of_each_worker(tmp_path: pathlib.Path, storage: str):
    options = {'capacity': 50, 'chunksize': 4, 'online': True, 'storage': storage}
    replays = [embodied.Replay(3, directory=tmp_path / x, **options) for x in 'ab']
    for number in range(40):
        workers = [w for w in range(5) if (number + w) % 3]  # not always all of them
        for worker in workers:
            replays[0].add(step(number, worker, first=number == 0), worker)
        replays[1].add_batch(batch_of(number, workers), workers)
    assert all_starts(replays[0]) == all_starts(replays[1])
    samples = [replay.sample(60) for replay in replays]
    for key in samples[0].keys() - {'stepid'}:
        np.testing.assert_array_equal(samples[0][key], samples[1][key])
    stats = [replay.stats() for replay in replays]
    assert stats[0] == stats[1]
    assert 'log/step' not in samples[1]


def test_a_batch_may_name_a_worker_twice():
    replay = embodied.Replay(length=2, chunksize=2)
    steps = {'step': np.arange(5), 'env': np.array([0, 1, 0, 0, 1])}
    replay.add_batch(steps, [0, 1, 0, 0, 1])
    assert all_starts(replay) == [(0, 0), (0, 2), (1, 1)]
    replay.add_batch({key: value[:0] for key, value in steps.items()}, [])
    assert len(replay) == 3


def test_a_batch_that_does_not_fit_changes_nothing():
    replay = embodied.Replay(length=1)
    replay.add_batch(batch_of(0, [0, 1]), [0, 1])
    wrong = {**batch_of(1, [0, 1]), 'latent': np.zeros((2, 4), np.uint16)}
    with pytest.raises(
        embodied.UserError, match=r'uint16 \(3,\), but a step has uint16 \(4,\)'
    ):
        replay.add_batch(wrong, [0, 1])
    with pytest.raises(embodied.UserError, match='a step has'):
        replay.add_batch(batch_of(1, [0, 1, 2]), [0, 1])
    assert len(replay) == 2


def test_unknown_mode_is_refused():
    replay = embodied.Replay(length=1)
    replay.add(step(0))
    with pytest.raises(ValueError, match='test'):
        replay.sample(1, 'test')


def test_given_selector_is_told_of_items_and_priorities():
    class Recorder(embodied.selectors.Fifo):
        def __init__(self):
            super().__init__()
            self.stepids, self.seen = {}, []

        def __setitem__(self, key: int, stepids: np.ndarray) -> None:
            super().__setitem__(key, stepids)
            self.stepids[key] = stepids.copy()

        def prioritize(self, stepids: np.ndarray, priorities: np.ndarray) -> None:
            self.seen.append((stepids.copy(), priorities.copy()))

    selector = Recorder()
    replay = embodied.Replay(length=3, capacity=5, chunksize=2, selector=selector)
    fill(replay, 10)
    data = replay.sample(1)
    assert starts(data) == [(0, 3)]  # the oldest
    assert list(selector._keys.values()) == [3, 4, 5, 6, 7]
    np.testing.assert_array_equal(selector.stepids[3], data['stepid'][0])
    ids = np.concatenate([data['stepid'], np.zeros_like(data['stepid'])])
    priority = np.arange(6.0).reshape(2, 3)
    replay.update({'stepid': ids, 'priority': priority})
    ((seen, priorities),) = selector.seen
    np.testing.assert_array_equal(seen, data['stepid'][0])
    assert priorities.tolist() == [0, 1, 2]


def test_update_overwrites_wherever_the_step_is_sampled():
    replay = embodied.Replay(length=3, chunksize=2)
    fill(replay, 8)
    data = replay.sample(2)
    new = np.arange(18, dtype=np.uint16).reshape(2, 3, 3) + 100
    replay.update({'stepid': data['stepid'], 'latent': new})
    model = {number: [number % 7] * 3 for number in range(8)}
    for steps, rows in zip(data['step'].tolist(), new.tolist(), strict=True):
        model.update(zip(steps, rows, strict=True))
    after = replay.sample(20)
    for steps, rows in zip(after['step'].tolist(), after['latent'].tolist(), strict=True):
        assert rows == [model[number] for number in steps]
    np.testing.assert_array_equal(after['step'], after['step'][:, :1] + np.arange(3))
    assert replay.stats()['updates'] == 6


def test_update_ignores_steps_that_have_left():
    replay = embodied.Replay(length=2, capacity=4, chunksize=2)
    fill(replay, 4)
    old = replay.sample(3)
    fill(replay, 50, start=4)
    before = replay.sample(40)
    replay.stats()
    replay.update({'stepid': old['stepid'], 'latent': np.full((3, 2, 3), 9999, np.uint16)})
    replay.update(
        {'stepid': np.full((1, 2, 20), 255, np.uint8), 'env': np.ones((1, 2), np.int32)}
    )
    replay.update({'stepid': np.zeros((0, 2, 20), np.uint8)})
    assert replay.stats()['updates'] == 0
    assert before['latent'].max() < 7
    assert replay.sample(40)['latent'].max() < 7


def test_an_empty_replay_ignores_updates():
    """Of steps that an earlier one held, which was killed before it had saved them."""
    steps = {'stepid': np.zeros((2, 3, 20), np.uint8), 'priority': np.ones((2, 3))}
    replay = embodied.Replay(length=3, capacity=10)
    replay.update({**steps, 'latent': np.zeros((2, 3, 4), np.float32)})
    assert len(replay) == 0
    assert replay.stats()['updates'] == 0


def test_update_ignores_an_index_beyond_the_chunk():
    replay = embodied.Replay(length=2, chunksize=8)
    fill(replay, 3)
    ids = replay.sample(1)['stepid'][:, :1].copy()
    for index, known in ((2, True), (3, False), (8, False), (2**32 - 1, False)):
        ids[0, 0, 16:] = np.frombuffer(index.to_bytes(4, 'big'), np.uint8)
        replay.update({'stepid': ids, 'latent': np.full((1, 1, 3), 77, np.uint16)})
        assert replay.stats()['updates'] == known


def test_update_takes_the_known_part_of_a_run():
    replay = embodied.Replay(length=2, chunksize=4)
    fill(replay, 3)
    ids = np.repeat(replay.sample(1)['stepid'][:, :1], 6, 1)
    ids[0, :, 16:] = np.arange(1, 7, dtype='>u4').view(np.uint8).reshape(6, 4)
    replay.update({'stepid': ids, 'latent': np.full((1, 6, 3), 77, np.uint16)})
    assert replay.stats()['updates'] == 2
    fill(replay, 1, start=3)
    latent = dict(zip(range(4), [0, 77, 77, 3], strict=True))
    data = replay.sample(50)
    assert {n: latent[n] for n in range(4)} == {
        n: int(x) for n, x in zip(data['step'].flat, data['latent'][..., 0].flat, strict=True)
    }


@pytest.mark.parametrize(
    ('update', 'message'),
    [
        ({'other': np.zeros((2, 3), np.int32)}, "stores no 'other'"),
        ({'latent': np.zeros((2, 3), np.uint16)}, "'latent' has uint16"),
        ({'latent': np.zeros((2, 3, 3), np.float32)}, "'latent' has float32"),
        ({'latent': np.zeros((3, 2, 3), np.uint16)}, "'latent' has uint16"),
    ],
)
def test_malformed_updates_are_errors(update: dict, message: str):
    replay = embodied.Replay(length=3)
    fill(replay, 5)
    before = replay.sample(2, 'report')
    with pytest.raises(ValueError, match=message):
        replay.update({'stepid': before['stepid'], **update})
    assert replay.stats()['updates'] == 0


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'step': np.int64(1)}, r"stores 'step' as int32 \(\), but a step has int64 \(\)"),
        ({'latent': np.zeros(2, np.uint16)}, r'uint16 \(3,\), but a step has uint16 \(2,\)'),
        ({'extra': np.int32(0)}, r"stores the keys .*, but a step has .*'extra'"),
    ],
)
def test_steps_that_do_not_fit_are_errors(change: dict, message: str):
    replay = embodied.Replay(length=1)
    replay.add(step(0))
    with pytest.raises(embodied.UserError, match=message):
        replay.add({**step(1), **change}, 'w')
    assert len(replay) == 1


@pytest.mark.parametrize('change', [{'length': 0}, {'capacity': 0}, {'chunksize': 0}])
def test_sizes_below_one_are_errors(change: dict):
    with pytest.raises(embodied.UserError, match='at least 1'):
        embodied.Replay(**{'length': 2, **change})


def test_stats_count_since_the_last_call():
    replay = embodied.Replay(length=4, chunksize=16)
    assert replay.stats() == {
        'items': 0, 'chunks': 0, 'streams': 0, 'ram_gb': 0, 'inserts': 0, 'samples': 0,
        'updates': 0, 'replay_ratio': 0,
    }  # fmt: skip
    fill(replay, 8, workers=2)
    data = replay.sample(5)
    replay.update({'stepid': data['stepid']})
    size = 16 * (4 + 4 + 1 + 1 + 6 + 20)
    assert replay.stats() == {
        'items': 10, 'chunks': 2, 'streams': 2, 'ram_gb': 2 * size / 2**30, 'inserts': 10,
        'samples': 5, 'updates': 20, 'replay_ratio': 2,
    }  # fmt: skip
    assert replay.stats()['samples'] == replay.stats()['inserts'] == 0


def check_counters(data: dict) -> None:
    """The counter rises by one except at is_first; actions are aligned; one env each."""
    follows = ~data['is_first'][:, 1:]
    np.testing.assert_array_equal(np.diff(data['step'])[follows], 1)
    assert not data['step'][:, 1:][~follows].any()
    np.testing.assert_array_equal(data['last'][:, 1:], data['action'][:, :-1])
    assert (data['env'] == data['env'][:, :1]).all()
    rises = np.diff(data['episode'])
    np.testing.assert_array_equal(rises == 1, ~follows)
    assert not rises[follows].any()
    np.testing.assert_array_equal(data['latent'][..., 0], data['step'])


def test_counter_environments_come_back_unchanged(tmp_path: pathlib.Path):
    makes = [lambda i=i: CounterEnv(i, length=13 + i, terminal=i == 0) for i in range(3)]
    driver = embodied.Driver(makes, parallel=False)
    agent = DoubleAgent(driver.obs_space, driver.act_space)
    options = dict(length=9, capacity=200, directory=tmp_path, chunksize=32)
    replay = embodied.Replay(**options, online=True)
    driver.on_step(replay.add)
    driver.reset(agent.init_policy)
    driver(agent.policy, steps=900)
    assert len(replay) == 200
    for _ in range(20):
        check_counters(replay.sample(50))
    kept = []
    for _ in range(3):
        replay.save()
        replay = embodied.Replay(**options)
        replay.load()
        kept.append(all_starts(replay))
        replay.load()
        assert all_starts(replay) == kept[-1]
        check_counters(replay.sample(200))
    assert len(kept[0]) == 200
    assert kept[0] == kept[1] == kept[2]


def test_save_writes_only_what_is_new(tmp_path: pathlib.Path):
    replay = embodied.Replay(length=2, directory=tmp_path, chunksize=4)
    fill(replay, 10)
    assert replay.save().items() >= {'items': 9, 'chunks': 3}.items()
    first = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert [name.split('-')[3] for name in sorted(first)] == ['4.npz', '4.npz', '2.npz']
    replay.save()
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == first
    fill(replay, 4, start=10)
    replay.save()
    second = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(second) == 4
    kept = sorted(first)[:2]
    assert {name: second[name] for name in kept} == {name: first[name] for name in kept}
    assert sorted(first)[2] not in second  # it grew, and has another name now


@pytest.mark.parametrize('steps', [3, 4, 5])
def test_chunk_saved_when_full_is_linked_later(tmp_path: pathlib.Path, steps: int):
    replay = embodied.Replay(length=2, directory=tmp_path, chunksize=4)
    fill(replay, steps)
    replay.save()
    fill(replay, 4, start=steps)
    replay.save()
    again = embodied.Replay(length=2, directory=tmp_path)
    again.load()
    assert all_starts(again) == [(0, n) for n in range(steps + 3)]


def test_changed_values_are_written_up_to_a_budget(tmp_path: pathlib.Path, monkeypatch):
    replay = embodied.Replay(length=1, directory=tmp_path, chunksize=1)
    fill(replay, 4)
    replay.save()
    size = replay._storage._chunks[0].nbytes
    monkeypatch.setattr(storage, 'REFRESH_BYTES', 2 * size)
    data = replay._storage.read([replay._span(i) for i in range(4)], 1)
    written = []

    def values() -> list[int]:
        again = embodied.Replay(length=1, directory=tmp_path)
        again.load()
        got = again.sample(200)
        return [int(got['latent'][got['step'] == i].max()) for i in range(4)]

    for value in (100, 200, 300):
        latent = np.full_like(data['latent'], value)
        replay.update({'stepid': data['stepid'], 'latent': latent})
        replay.save()
        written.append(values())
    assert written == [[0, 1, 100, 100], [200, 200, 100, 100], [200, 200, 300, 300]]
    replay.save()
    assert values() == [300] * 4
    assert len(list(tmp_path.iterdir())) == 4


def test_files_of_chunks_that_left_are_removed(tmp_path: pathlib.Path):
    replay = embodied.Replay(length=3, capacity=20, directory=tmp_path, chunksize=5)
    (tmp_path / 'notes.txt').touch()
    for start in range(0, 1000, 50):
        fill(replay, 50, start=start)
        replay.save()
        lengths = [int(x.stem.split('-')[3]) for x in tmp_path.glob('*.npz')]
        assert 22 <= sum(lengths) <= 22 + 2 * 5
    assert (tmp_path / 'notes.txt').exists()


def test_without_a_directory_save_and_load_do_nothing():
    replay = embodied.Replay(length=2)
    fill(replay, 5)
    replay.load(replay.save())
    assert len(replay) == 4
