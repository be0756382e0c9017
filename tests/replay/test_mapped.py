"""Chunks in mapped files: what survives without a save, and what damage does."""

import contextlib
import errno
import json
import os
import pathlib
import resource
import tracemalloc

import numpy as np
import pytest

import embodied
from embodied.core import retries
from embodied.replay import mappedfile, mapping, spares
from tests.replay.test_replay import all_starts, fill, starts, step


def make(directory: pathlib.Path, length: int = 3, **options) -> embodied.Replay:
    options = {'chunksize': 5, 'storage': 'disk', **options}
    return embodied.Replay(length=length, directory=directory, **options)


def load(directory: pathlib.Path, length: int = 3, **options) -> embodied.Replay:
    replay = make(directory, length, **options)
    replay.load()
    return replay


def files(directory: pathlib.Path, suffix: str = 'chunk') -> list[pathlib.Path]:
    return sorted(directory.glob(f'*.{suffix}'))


def test_steps_and_updates_are_there_without_a_save(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    fill(replay, 23, workers=2)
    data = replay.sample(4)
    latent = np.full((4, 3, 3), 999, np.uint16)
    replay.update({'stepid': data['stepid'], 'latent': latent})
    again = load(tmp_path)
    assert sorted(all_starts(again)) == sorted(all_starts(replay))
    changed = {
        (int(w), int(n)) for w, n in zip(data['env'].flat, data['step'].flat, strict=True)
    }
    after = again.sample(200)
    for worker, number, value in zip(
        after['env'].flat, after['step'].flat, after['latent'].reshape(-1, 3), strict=True
    ):
        new = (int(worker), int(number)) in changed
        assert value.tolist() == 3 * [999 if new else number % 7]
    assert again.stats()['ram_gb'] == 0


def test_few_open_files_serve_many_chunks(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    replay._storage._maps._limit = 2
    fill(replay, 40, workers=3)
    data = replay.sample(50)
    np.testing.assert_array_equal(data['step'], data['step'][:, :1] + np.arange(3))
    latent = np.full((50, 3, 3), 50, np.uint16)
    replay.update({'stepid': data['stepid'], 'latent': latent})
    assert len(replay._storage._maps._recent) == 2
    assert replay.stats()['updates'] == 150
    assert sorted(all_starts(load(tmp_path))) == sorted(all_starts(replay))


def traced() -> int:
    """Bytes in use, but for the table of all names of files that the interpreter keeps."""
    names = tracemalloc.Filter(False, pathlib.__file__)
    statistics = tracemalloc.take_snapshot().filter_traces([names]).statistics('filename')
    return sum(x.size for x in statistics)


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_two_thousand_items_stay_two_thousand(tmp_path: pathlib.Path, storage: str):
    replay = make(tmp_path, 10, capacity=2000, chunksize=64, storage=storage)
    tracemalloc.start()
    try:
        sizes = []
        for start in range(0, 14_000, 500):
            fill(replay, 250, workers=2, start=start)
            replay.save()
            if start >= 9000:  # full and settled
                sizes.append(traced())
    finally:
        tracemalloc.stop()
    assert len(replay) == 2000
    assert max(sizes) - min(sizes) < 0.1 * max(sizes)
    # 2000 items begin in as many steps; beside them the rest of two chunks, and two open ones.
    chunks = replay.stats()['chunks']
    assert chunks <= 2000 / 64 + 2 * 3
    found = list(tmp_path.iterdir())
    assert len(found) == chunks
    assert len(load(tmp_path, 10, capacity=2000, storage=storage)) == 2000


def test_files_of_chunks_that_leave_go_at_once(tmp_path: pathlib.Path):
    replay = make(tmp_path, capacity=20)
    for start in range(0, 400, 10):
        fill(replay, 10, start=start)
        assert len(files(tmp_path)) == replay.stats()['chunks'] <= 6


def test_a_sequence_outlives_its_file(tmp_path: pathlib.Path):
    replay = make(tmp_path, capacity=5)
    fill(replay, 7)
    span = replay._span(replay._first)
    fill(replay, 50, start=7)
    assert replay._storage.read([span], 3)['step'].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(('before', 'after'), [('ram', 'disk'), ('disk', 'ram')])
def test_storage_can_change(tmp_path: pathlib.Path, before: str, after: str):
    replay = make(tmp_path, storage=before)
    fill(replay, 23, workers=2)
    replay.save()
    items = sorted(all_starts(replay))
    for _ in range(2):
        again = load(tmp_path, storage=after)
        assert sorted(all_starts(again)) == items
    again.save()
    assert len(files(tmp_path, 'npz' if after == 'ram' else 'chunk')) == 10
    assert len(list(tmp_path.iterdir())) == 10
    fill(again, 10, start=50)
    again.save()
    assert sorted(all_starts(load(tmp_path, storage=after))) == [
        *items[:21], *[(0, n) for n in range(50, 58)], *items[21:]
    ]  # fmt: skip


def test_loading_twice_and_a_smaller_capacity(tmp_path: pathlib.Path):
    fill(make(tmp_path), 40)
    replay = load(tmp_path, capacity=9)
    assert all_starts(replay) == [(0, n) for n in range(29, 38)]
    replay.load()
    assert len(replay) == 9
    fill(replay, 20, start=40)
    assert all_starts(replay) == [(0, n) for n in range(49, 58)]
    replay.save()
    assert len(files(tmp_path)) == replay.stats()['chunks']


def shorten(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def spoil(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[50] = 255  # in the JSON header
    path.write_bytes(data)


def other_header(path: pathlib.Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"keys"', b'"kays"'))


def miscount(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[16:24] = (6).to_bytes(8, 'little')
    path.write_bytes(data)


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (shorten, r'has \d+ bytes instead of \d+ \(5 steps lost\)'),
        (spoil, r'it has a damaged header \(an unknown number of steps lost\)'),
        (other_header, r'it has a damaged header \(an unknown number of steps lost\)'),
        (miscount, r'it counts 6 steps, but has room for 5'),
        (lambda path: path.write_bytes(b''), r'it does not begin as a chunk of this package'),
        (lambda path: path.unlink(), r'is missing, in which .* goes on \(up to 5 steps lost\)'),
    ],
)
def test_no_sequence_crosses_a_damaged_file(tmp_path: pathlib.Path, damage, message: str):
    fill(make(tmp_path), 20)
    damage(files(tmp_path)[1])  # steps 5 to 9
    with pytest.warns(UserWarning, match=message) as record:
        replay = load(tmp_path)
    assert len(record) == 1
    assert all_starts(replay) == [(0, n) for n in (0, 1, 2, *range(10, 18))]


def test_leftovers_and_foreign_files(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    fill(replay, 5)
    path = files(tmp_path)[0]
    path.with_suffix('.tmp').touch()
    (tmp_path / 'mine.chunk').touch()
    with pytest.warns(UserWarning, match=r'mine\.chunk.*foreign name'):
        again = load(tmp_path)
    again.save()
    assert sorted(x.name for x in tmp_path.iterdir()) == sorted([path.name, 'mine.chunk'])


def test_a_chunk_without_steps_is_removed(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    fill(replay, 5)
    replay._stream(0)  # makes the next chunk; the process ends before a step is in
    assert len(files(tmp_path)) == 2
    again = load(tmp_path)
    assert all_starts(again) == [(0, 0), (0, 1), (0, 2)]
    again.save()
    assert len(files(tmp_path)) == 1
    assert len(load(tmp_path)) == 3  # nothing is missing


def test_a_full_disk_is_an_error_that_loses_no_step(tmp_path: pathlib.Path, monkeypatch):
    replay = make(tmp_path)
    fill(replay, 5, workers=2)
    batch = batch_of(5, workers=2)
    for room in (0, 1):  # files; each step of the batch needs one
        with full_disk(monkeypatch, room), pytest.raises(embodied.UserError) as caught:
            replay.add_batch(batch, [0, 1])
        assert 'replay.storage' in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert 'No space' in str(caught.value)
        assert len(list(tmp_path.iterdir())) == 2  # what was made is given back
    with full_disk(monkeypatch, 0), pytest.raises(embodied.UserError, match='room'):
        replay.add(step(5))
    assert len(replay) == 6
    replay.sample(2)
    replay.save()
    replay.add_batch(batch, [0, 1])
    assert sorted(all_starts(replay)) == [(w, n) for w in range(2) for n in range(4)]
    assert sorted(all_starts(load(tmp_path))) == sorted(all_starts(replay))


def test_steps_whose_file_is_gone_may_be_overwritten(tmp_path: pathlib.Path):
    """They left after they had been looked up."""
    replay = make(tmp_path, capacity=5)
    fill(replay, 7)
    ids = replay.sample(5)['stepid'].reshape(-1, 20)
    runs = list(replay._storage.runs(ids))
    fill(replay, 50, start=7)
    replay._storage.overwrite(runs, {'latent': np.full((15, 3), 9, np.uint16)})
    assert (replay.sample(9)['latent'] != 9).all()


def batch_of(number: int, workers: int) -> dict:
    return {key: np.stack([step(number, w)[key] for w in range(workers)]) for key in step(0)}


@contextlib.contextmanager
def full_disk(monkeypatch, room: int):
    """Let the disk have room for so many more files."""
    left = [None] * room

    def reserve(file, size: int) -> None:
        if not left:
            raise OSError(errno.ENOSPC, 'No space left on device')
        left.pop()
        file.truncate(size)

    with monkeypatch.context() as patch:
        patch.setattr(mappedfile, '_reserve', reserve)
        yield


def test_a_loaded_stream_outlives_a_full_disk(tmp_path: pathlib.Path, monkeypatch):
    replay = make(tmp_path)
    fill(replay, 7)
    data = replay.save()
    replay = make(tmp_path)
    replay.load(data)
    with full_disk(monkeypatch, 0), pytest.raises(embodied.UserError, match='room'):
        replay.add(step(7))
    replay.add(step(7))
    assert all_starts(replay) == [(0, n) for n in range(6)]


def test_a_full_disk_while_files_are_converted(tmp_path: pathlib.Path, monkeypatch):
    replay = make(tmp_path, storage='ram')
    fill(replay, 7)
    replay.save()
    with full_disk(monkeypatch, 1), pytest.raises(embodied.UserError, match='room'):
        load(tmp_path)
    assert all_starts(load(tmp_path)) == [(0, n) for n in range(5)]


def test_room_for_files_is_made_while_sampling_goes_on(tmp_path: pathlib.Path, monkeypatch):
    replay, locked = make(tmp_path), []
    reserve, touch, touched = mappedfile._reserve, mappedfile.touch, []

    def spy(file, size: int) -> None:
        locked.append(replay._lock.locked())
        reserve(file, size)

    def spy_touch(path: pathlib.Path) -> None:
        touched.append(replay._lock.locked())
        touch(path)

    monkeypatch.setattr(mappedfile, '_reserve', spy)
    monkeypatch.setattr(mappedfile, 'touch', spy_touch)
    for number in range(8):
        replay.add_batch(batch_of(number, workers=3), range(3))
    for number in range(8, 12):
        replay.add(step(number, 1), 1)
    assert locked == touched == [False] * (2 * 3 + 1)
    assert len(list(tmp_path.iterdir())) == replay.stats()['chunks'] == len(locked)
    again = make(tmp_path)
    again.load(replay.save())
    again.add(step(8, 0))
    assert not any(locked)
    assert (0, 6) in all_starts(again)


@contextlib.contextmanager
def failing(monkeypatch, owner, name: str, code: int, times: int):
    """Let a function fail so often, and no retry wait."""
    left, original = [None] * times, getattr(owner, name)

    def fail(*args, **kwargs):
        if left:
            left.pop()
            raise OSError(code, os.strerror(code))
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(retries, 'PAUSES', (0, 0))
        patch.setattr(owner, name, fail)
        yield


PLACES = {
    'rename': (spares.os, 'replace'),
    'reserve': (mappedfile, '_reserve'),
    'map': (mapping, 'of'),
}


@pytest.mark.parametrize('code', [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize('place', PLACES)
def test_an_error_that_passes_is_waited_for(tmp_path, monkeypatch, capsys, place, code):
    replay = make(tmp_path)
    fill(replay, 5)
    with failing(monkeypatch, *PLACES[place], code, 2):
        fill(replay, 10, start=5)
    out = capsys.readouterr().out
    assert out.count('Warning: Cannot') == out.count('trying again') == 2
    assert all_starts(load(tmp_path)) == [(0, n) for n in range(13)]


@pytest.mark.parametrize('code', [errno.EIO, errno.EROFS])
@pytest.mark.parametrize('place', PLACES)
def test_an_error_that_stays_is_one_sentence(tmp_path, monkeypatch, place, code):
    replay = make(tmp_path)
    fill(replay, 5)
    with failing(monkeypatch, *PLACES[place], code, 99):
        with pytest.raises(embodied.UserError, match=r'replay\.storage ram') as caught:
            fill(replay, 10, start=5)
        assert '\n' not in str(caught.value)
        assert os.strerror(code) in str(caught.value)
    fill(replay, 10, start=5)
    assert all_starts(replay) == [(0, n) for n in range(13)]


@pytest.mark.parametrize('batch', [False, True])
def test_no_step_is_half_written_where_a_file_cannot_be_mapped(tmp_path, monkeypatch, batch):
    replay = make(tmp_path)
    fill(replay, 3, workers=2)
    add = lambda: replay.add_batch(batch_of(3, 2), [0, 1]) if batch else replay.add(step(3))
    replay._storage._maps._recent.clear()
    with failing(monkeypatch, *PLACES['map'], errno.EIO, 99), pytest.raises(embodied.UserError):
        add()
    fill(replay, 9, workers=2, start=3)
    assert sorted(all_starts(replay)) == [(w, n) for w in range(2) for n in range(10)]
    assert sorted(all_starts(load(tmp_path))) == sorted(all_starts(replay))


def test_a_file_that_cannot_be_removed_ends_nothing(tmp_path, monkeypatch, capsys):
    replay = make(tmp_path, capacity=10)
    fill(replay, 15)
    with failing(monkeypatch, pathlib.Path, 'unlink', errno.ESTALE, 99):
        fill(replay, 20, start=15)
    assert 'Warning: cannot remove' in capsys.readouterr().out
    again = load(tmp_path, capacity=10)
    assert all_starts(again) == all_starts(replay)
    again.save()
    assert len(files(tmp_path)) == again.stats()['chunks']


def test_mapped_files_take_no_place_among_open_ones(tmp_path: pathlib.Path):
    """As with the limit of 256 that macOS has; both replays of train_eval count."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as probe:
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe.fileno() + 20, limits[1]))
    try:
        for name in ('replay', 'replay_eval'):
            replay = make(tmp_path / name, chunksize=3)
            fill(replay, 60, workers=8)
            data = replay.sample(150)
            np.testing.assert_array_equal(data['step'], data['step'][:, :1] + np.arange(3))
            replay.update({'stepid': data['stepid'], 'env': np.zeros((150, 3), np.int32)})
            replay.save()
            assert len(load(tmp_path / name)) == 8 * 58
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_values_may_have_no_bytes(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    for number in range(7):
        replay.add({'step': np.int32(number), 'nothing': np.zeros((2, 0), np.float32)})
    data = load(tmp_path).sample(2)
    assert data['nothing'].shape == (2, 3, 2, 0)
    np.testing.assert_array_equal(data['step'], data['step'][:, :1] + np.arange(3))


def test_a_spare_file_may_be_tidied_up(tmp_path: pathlib.Path):
    replay = make(tmp_path)
    fill(replay, 5)
    replay._storage.prepare(1)
    (spare,) = files(tmp_path, 'tmp')
    spare.unlink()
    fill(replay, 5, start=5)
    assert all_starts(load(tmp_path)) == [(0, n) for n in range(8)]


def test_latents_of_another_dtype_are_converted_in_their_files(tmp_path: pathlib.Path):
    fill(make(tmp_path), 20)

    def convert(arrays: dict) -> dict:
        return {**arrays, 'latent': arrays['latent'].astype(np.float32)}

    for _ in range(2):
        replay = load(tmp_path, convert=convert)
        assert len(replay) == 18
        data = replay.sample(30)
        assert data['latent'].dtype == np.float32
        assert (data['latent'] == data['step'][..., None] % 7).all()
        replay.save()
        assert len(files(tmp_path)) == 4
    headers = [path.read_bytes()[48:].split(b'}')[0] + b'}' for path in files(tmp_path)]
    assert all(['latent', '<f4', [3]] in json.loads(header)['keys'] for header in headers)


def test_saving_can_wait_for_the_disk(tmp_path: pathlib.Path):
    replay = make(tmp_path, save_wait=True)
    fill(replay, 12)
    assert replay.save().items() >= {'items': 10, 'chunks': 3}.items()
    assert starts(load(tmp_path).sample(1))


@pytest.mark.parametrize('options', [{'storage': 'tape'}, {'storage': 'disk'}])
def test_impossible_storage_is_refused(options: dict):
    with pytest.raises(embodied.UserError, match=r'replay\.storage'):
        embodied.Replay(length=2, **options)
