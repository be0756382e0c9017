"""Loading: what damaged, foreign and recorded folders give."""

import datetime
import pathlib
import shutil

import numpy as np
import pytest

import embodied
from embodied.core import stamps
from embodied.replay import files
from tests.replay.test_replay import all_starts, fill, starts, step

RECORDED = pathlib.Path(__file__).parents[1] / 'golden' / 'reference_run' / 'replay'


def saved(directory: pathlib.Path, steps: int = 20, workers: int = 1, **options) -> list:
    """Fill a folder with chunks of 5 steps and return the items."""
    replay = embodied.Replay(length=3, directory=directory, chunksize=5, **options)
    fill(replay, steps, workers)
    replay.save()
    return all_starts(replay)


def load(directory: pathlib.Path, length: int = 3, **options) -> embodied.Replay:
    replay = embodied.Replay(length=length, directory=directory, chunksize=5, **options)
    replay.load()
    return replay


def chunk_files(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.glob('*.npz'))


def test_items_come_back_across_chunks(tmp_path: pathlib.Path):
    items = saved(tmp_path, steps=23, workers=2)
    replay = load(tmp_path)
    assert sorted(all_starts(replay)) == sorted(items)
    assert replay.save().items() >= {'items': 42, 'chunks': 10, 'streams': []}.items()
    data = replay.sample(50)
    np.testing.assert_array_equal(data['step'], data['step'][:, :1] + np.arange(3))
    assert (data['latent'] == data['step'][..., None] % 7).all()


@pytest.mark.parametrize('length', [1, 2, 7, 20, 21])
def test_any_other_length_loads(tmp_path: pathlib.Path, length: int):
    saved(tmp_path)
    assert all_starts(load(tmp_path, length)) == [(0, n) for n in range(20 - length + 1)]
    assert len(chunk_files(tmp_path)) == 4


def test_stepids_stay_the_same(tmp_path: pathlib.Path):
    replay = embodied.Replay(length=3, directory=tmp_path, chunksize=5)
    fill(replay, 12)
    before = replay.sample(20)
    replay.save()
    again = load(tmp_path)
    replay.update({'stepid': before['stepid'], 'env': np.full((20, 3), 5, np.int32)})
    again.update({'stepid': before['stepid'], 'env': np.full((20, 3), 5, np.int32)})
    assert replay.stats()['updates'] == again.stats()['updates'] == 60


def test_workers_begin_new_streams(tmp_path: pathlib.Path):
    items = saved(tmp_path, steps=7)
    replay = load(tmp_path)
    fill(replay, 2, start=7)
    assert all_starts(replay) == items
    fill(replay, 1, start=9)
    assert all_starts(replay) == [*items, (0, 7)]
    replay.save()
    assert sorted(all_starts(load(tmp_path))) == [*items, (0, 7)]


def test_loading_again_doubles_nothing(tmp_path: pathlib.Path):
    replay = embodied.Replay(length=3, directory=tmp_path, chunksize=5, online=True)
    fill(replay, 12)
    replay.save()
    items = all_starts(replay)
    replay.load()
    assert all_starts(replay) == items
    fill(replay, 3, start=12)  # the stream goes on, since there was no gap
    assert all_starts(replay) == [(0, n) for n in range(13)]
    assert starts(replay.sample(5)) == [(0, n) for n in (0, 3, 6, 9, 12)]


def test_loading_into_a_filled_replay_adds_what_is_missing(tmp_path: pathlib.Path):
    saved(tmp_path, steps=6)
    replay = embodied.Replay(length=3, capacity=7, directory=tmp_path, chunksize=5)
    fill(replay, 7, start=100)
    replay.load()
    assert all_starts(replay) == [(0, n) for n in (100, 101, 102, 103, 104, 2, 3)]
    replay.load()
    assert len(replay) == 7


@pytest.mark.parametrize('workers', [1, 2])
def test_a_smaller_capacity_keeps_the_newest(tmp_path: pathlib.Path, workers: int):
    saved(tmp_path, steps=40, workers=workers)
    replay = load(tmp_path, capacity=9)
    assert len(replay) == 9
    assert min(n for _, n in all_starts(replay)) >= 40 - 9 - 3
    if workers == 1:
        assert all_starts(replay) == [(0, n) for n in range(29, 38)]
    replay.save()  # removes what will never be needed
    assert sum(files.parse(path.name).length for path in chunk_files(tmp_path)) <= 9 + 2 * 7
    assert all_starts(load(tmp_path, capacity=9)) == all_starts(replay)


def test_loaded_chunks_leave_like_others(tmp_path: pathlib.Path):
    saved(tmp_path, steps=12)  # the last chunk has 2 steps, in which no item begins
    replay = load(tmp_path, capacity=10)
    assert replay.stats()['chunks'] == 3
    fill(replay, 30, start=100)
    assert all_starts(replay) == [(0, n) for n in range(118, 128)]
    replay.save()
    assert len(chunk_files(tmp_path)) == replay.stats()['chunks'] == 3
    assert all_starts(load(tmp_path)) == [(0, n) for n in range(115, 128)]


def cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_keys(path: pathlib.Path) -> None:
    np.savez(path, step=np.zeros(5, np.int32))


@pytest.mark.parametrize(
    'damage', [cut, lambda path: path.write_bytes(b''), lambda path: path.unlink(), other_keys]
)
def test_no_sequence_crosses_a_damaged_chunk(tmp_path: pathlib.Path, damage):
    saved(tmp_path)
    path = chunk_files(tmp_path)[1]  # steps 5 to 9
    damage(path)
    uuid = path.name.split('-')[1]
    with pytest.warns(UserWarning, match=f'{uuid}.*5 steps lost') as record:
        replay = load(tmp_path)
    assert len(record) == 1
    assert all_starts(replay) == [(0, n) for n in (0, 1, 2, *range(10, 18))]


def test_one_warning_for_each_file_that_is_skipped(tmp_path: pathlib.Path):
    saved(tmp_path)
    first, _, third, _ = chunk_files(tmp_path)
    cut(first)
    cut(third)
    (tmp_path / 'weights.npz').touch()
    (tmp_path / 'notes.txt').touch()
    with pytest.warns(UserWarning, match='skipped') as record:
        replay = load(tmp_path)
    messages = sorted(str(warning.message) for warning in record)
    assert len(messages) == 3
    assert first.name in messages[0]
    assert messages[0].endswith('(5 steps lost).')
    assert third.name in messages[1]
    assert messages[1].endswith('(5 steps lost).')
    assert 'weights.npz' in messages[2]
    assert 'lost' not in messages[2]
    assert all_starts(replay) == [(0, n) for n in (5, 6, 7, 15, 16, 17)]
    replay.save()  # what is not understood is not removed
    assert len(list(tmp_path.iterdir())) == 6


def foreign(directory: pathlib.Path, storage: str, steps: int = 5) -> str:
    """Put a chunk of another task into a folder, newer than all others; return its name."""
    elsewhere = directory.parent / 'elsewhere'
    replay = embodied.Replay(length=1, directory=elsewhere, chunksize=steps, storage=storage)
    for number in range(steps):
        replay.add({'image': np.full((2, 2), number, np.uint8)})
    replay.save()
    (path,) = (x for x in elsewhere.iterdir() if x.suffix in ('.npz', '.chunk'))
    shutil.move(path, directory / ('2099' + path.name[4:]))
    return '2099' + path.name[4:]


@pytest.mark.parametrize('loaded_as', ['ram', 'disk'])
@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_newer_foreign_chunk_hides_nothing(tmp_path, storage, loaded_as):
    directory = tmp_path / 'replay'
    items = saved(directory, storage=storage)
    odd = foreign(directory, storage)
    for data in (None, {'streams': []}):
        with pytest.warns(
            UserWarning, match=f'{odd}.*other keys, shapes.*5 steps lost'
        ) as record:
            replay = load_with(directory, data, storage=loaded_as)
        assert len(record) == 1
        assert all_starts(replay) == items
    assert (directory / odd).exists()
    fill(replay, 3, start=20)
    assert len(replay) > len(items)


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_foreign_chunk_that_cannot_be_converted_hides_nothing(tmp_path, storage):
    directory = tmp_path / 'replay'
    items = saved(directory, storage=storage)
    odd = foreign(directory, storage)
    convert = lambda arrays: {**arrays, 'latent': arrays['latent'].astype(np.int32)}
    with pytest.warns(UserWarning, match=f'{odd}.*cannot be converted .*5 steps lost'):
        replay = load_with(directory, None, storage=storage, convert=convert)
    assert all_starts(replay) == items
    assert replay.sample(2)['latent'].dtype == np.int32


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_the_checkpoint_decides_which_chunks_are_foreign(tmp_path, storage):
    directory = tmp_path / 'replay'
    replay = embodied.Replay(length=3, directory=directory, chunksize=5, storage=storage)
    fill(replay, 20)
    data = replay.save()
    odd = foreign(directory, storage, steps=50)
    for anew in (False, True):
        with pytest.warns(UserWarning, match=f'{odd}.*50 steps lost'):
            again = load_with(directory, data, storage=storage, anew=anew)
        assert all_starts(again) == all_starts(replay)


def load_with(directory, data, anew=False, **options):
    replay = embodied.Replay(length=3, directory=directory, chunksize=5, **options)
    replay.load(data, anew)
    return replay


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_first_chunk_that_was_deleted_is_missed(tmp_path: pathlib.Path, storage: str):
    replay = embodied.Replay(length=3, directory=tmp_path, chunksize=5, storage=storage)
    fill(replay, 20)
    data = replay.save()
    load_with(tmp_path, data)  # a warning would be an error
    load_with(tmp_path, {**data, 'length': 2, 'items': 19})  # of another length
    embodied.Replay(length=3, capacity=9, directory=tmp_path, storage=storage).load(data)
    min(x for x in tmp_path.iterdir() if x.suffix in ('.npz', '.chunk')).unlink()
    with pytest.warns(
        UserWarning, match=r'found 13 items in .* checkpoint counts 18'
    ) as record:
        assert len(load_with(tmp_path, data, storage=storage)) == 13
    assert len(record) == 1


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_items_leave_in_the_order_of_their_steps_though_the_clock_was_set_back(
    tmp_path: pathlib.Path, storage: str, monkeypatch: pytest.MonkeyPatch
):
    """Between two runs, and within the second one; the same folder in another time zone."""
    now = iter(['20261129T030000F000000', '20261129T020000F000000', '20261129T010000F000000'])
    replay = load(tmp_path, storage=storage)
    data: dict = {}
    for start in range(0, 60, 20):
        clock = next(now)
        monkeypatch.setattr(stamps, 'datetime', FakeTime(clock))
        replay = load_with(tmp_path, data, storage=storage)
        fill(replay, 20, start=start)
        data = replay.save()
    again = load(tmp_path, capacity=30, storage=storage)
    assert all_starts(again) == [(0, n) for n in range(28, 58)]


class FakeTime:
    """Stands for the module datetime at a time that does not pass."""

    def __init__(self, now: str):
        self._now = datetime.datetime.strptime(now, stamps.STAMP)
        self.datetime, self.timezone = self, datetime.timezone
        self.max, self.strptime = datetime.datetime.max, datetime.datetime.strptime

    def now(self, zone: datetime.timezone) -> datetime.datetime:
        return self._now.replace(tzinfo=zone)


def test_leftovers_of_an_ended_process_are_removed(tmp_path: pathlib.Path):
    items = saved(tmp_path)
    path = chunk_files(tmp_path)[0]
    shutil.copy(path, path.with_suffix('.tmp'))
    shorter = files.parse(path.name)._replace(length=2, successor=files.NOWHERE)
    (tmp_path / str(shorter)).write_bytes(b'an earlier state of the same chunk')
    replay = load(tmp_path)
    assert all_starts(replay) == items
    replay.save()
    assert len(list(tmp_path.iterdir())) == 4


def test_streams_too_short_for_an_item_are_left_alone(tmp_path: pathlib.Path):
    saved(tmp_path, steps=2)
    replay = load(tmp_path)
    assert replay.save().items() >= {'items': 0, 'chunks': 0, 'streams': []}.items()
    assert len(chunk_files(tmp_path)) == 1
    assert all_starts(load(tmp_path, length=2)) == [(0, 0)]


def test_steps_that_do_not_fit_what_was_loaded_are_errors(tmp_path: pathlib.Path):
    saved(tmp_path)
    replay = load(tmp_path)
    with pytest.raises(embodied.UserError, match=r"stores 'latent' as uint16 \(3,\).*logdir"):
        replay.add({**step(0), 'latent': np.zeros(4, np.uint16)})


def one_hot_to_index(arrays: dict) -> dict:
    """Turn recorded one-hot latents into class indices; leave indices as they are."""
    if arrays['dyn/stoch'].dtype == np.uint8:
        return arrays
    return {**arrays, 'dyn/stoch': arrays['dyn/stoch'].argmax(-1).astype(np.uint8)}


@pytest.fixture
def recorded(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the files that the reference wrote."""
    shutil.copytree(RECORDED, tmp_path / 'replay')
    return tmp_path / 'replay'


def test_recorded_files_of_the_reference_load(recorded: pathlib.Path):
    replay = load(recorded, length=11, convert=one_hot_to_index)
    assert len(replay) == 370
    names = [files.parse(path.name) for path in chunk_files(recorded)]
    ids, steps = [], []
    for path in chunk_files(recorded):
        with np.load(path) as data:
            ids.append(data['stepid'])
            steps.append({key: data[key] for key in data.files})
    # The first chunks of both streams, and the ones in which they go on.
    for first, second in ((0, 2), (1, 3)):
        assert names[first].successor == names[second].uuid
        joined = np.concatenate([ids[first], ids[second]])
        wanted = {joined[i].tobytes(): joined[i : i + 11] for i in range(185)}
        data = replay.sample(400)
        for row in data['stepid']:
            if row[0].tobytes() in wanted:
                np.testing.assert_array_equal(row, wanted[row[0].tobytes()])
    lookup = {bytes(i): (c, n) for c, part in enumerate(ids) for n, i in enumerate(part)}
    places = [[lookup[bytes(i)] for i in row] for row in data['stepid'][:20]]
    for row, place in enumerate(places):
        for t, (c, n) in enumerate(place):
            for key in ('image', 'reward', 'action', 'is_terminal', 'dyn/deter'):
                np.testing.assert_array_equal(data[key][row, t], steps[c][key][n])
            onehot = steps[c]['dyn/stoch'][n]
            assert (onehot[np.arange(2), data['dyn/stoch'][row, t]] == 1).all()


def test_recorded_files_go_on_in_our_form(recorded: pathlib.Path):
    replay = load(recorded, length=11, convert=one_hot_to_index)
    data = replay.sample(50)
    before = {path.name: path.read_bytes() for path in chunk_files(recorded)}
    replay.save()
    assert {path.name: path.read_bytes() for path in chunk_files(recorded)} == before
    replay.update({'stepid': data['stepid'], 'dyn/stoch': np.full((50, 11, 2), 3, np.uint8)})
    replay.save()
    again = load(recorded, length=11, convert=one_hot_to_index)
    assert len(again) == 370
    ids = {bytes(i) for i in data['stepid'].reshape(-1, 20)}
    after = again.sample(50)
    written = [bytes(i) in ids for i in after['stepid'].reshape(-1, 20)]
    assert any(written)
    assert (after['dyn/stoch'].reshape(-1, 2)[written] == 3).all()
