"""Checksums: what is altered in a mapped chunk shows, and what training overwrites does not."""

import json
import os
import pathlib

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied.replay import checksums, mappedfile, storage
from tests.replay.test_replay import all_starts, fill

SIZES = [0, 1, 8, 4095, 4096, 4097, 3 * 4096 + 5]


@hypothesis.given(st.sampled_from(SIZES[1:]), st.integers(0, 2**20), st.integers(1, 255))
@hypothesis.settings(deadline=None)
def test_any_byte_counts(size: int, place: int, change: int):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    before = checksums.of(data)
    data[place % size] ^= change
    assert checksums.of(data) != before


def test_files_and_memory_agree(tmp_path: pathlib.Path, monkeypatch):
    monkeypatch.setattr(checksums, 'BLOCK', 8192)
    data = np.random.default_rng(0).integers(0, 256, 60_000, np.uint8)
    (tmp_path / 'file').write_bytes(data.tobytes())
    ranges = [(offset, size) for offset in (0, 4096, 100) for size in (*SIZES, 30_000)]
    wanted = [checksums.of(data[x : x + n]) for x, n in ranges]
    assert checksums.of_file(tmp_path / 'file', ranges) == wanted
    with pytest.raises(EOFError, match='too early'):
        checksums.of_file(tmp_path / 'file', [(59_999, 2)])


def test_pages_that_change_places_count():
    data = np.random.default_rng(0).integers(0, 256, 2 * 4096, np.uint8)
    assert checksums.of(data) != checksums.of(np.roll(data, 4096))


def make(directory: pathlib.Path, kind: str = 'disk', **options) -> embodied.Replay:
    return embodied.Replay(3, directory=directory, chunksize=5, storage=kind, **options)


def load(directory: pathlib.Path, kind: str = 'disk') -> embodied.Replay:
    replay = make(directory, kind)
    replay.load()
    return replay


def chunks(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.glob('*.chunk'))


def flip(path: pathlib.Path, key: str, step: int) -> None:
    """Change one bit of a stored value."""
    header = mappedfile.read_header(path)
    place = list(header.spec).index(key)
    shape, dtype = header.spec[key]
    bytes_ = int(np.prod(shape)) * dtype.itemsize
    data = bytearray(path.read_bytes())
    data[header.offsets[place] + step * bytes_ + bytes_ - 1] ^= 4
    path.write_bytes(data)


def sealed(path: pathlib.Path) -> list[str]:
    """The keys with a checksum, according to the file."""
    header = mappedfile.read_header(path)
    table = np.frombuffer(path.read_bytes(), '<u8', len(header.spec), header.checks)
    return [key for key, value in zip(header.spec, table, strict=True) if value]


@pytest.mark.parametrize('kind', ['ram', 'disk'])
@pytest.mark.parametrize('saved', [False, True])
@pytest.mark.parametrize('key', ['step', 'latent', 'is_first'])
def test_a_flipped_bit_in_a_complete_chunk(tmp_path, key, saved, kind):
    replay = make(tmp_path)
    fill(replay, 20)
    if saved:  # not needed: a chunk is sealed soon after the next one begins
        replay.save()
    flip(chunks(tmp_path)[1], key, step=3)
    name = chunks(tmp_path)[1].name
    message = f"{name} .* was altered: '{key}' does not match its checksum.*5 steps lost"
    with pytest.warns(UserWarning, match=message) as record:
        again = load(tmp_path, kind)
    assert len(record) == 1
    assert all_starts(again) == [(0, n) for n in (0, 1, 2, *range(10, 18))]
    again.save()
    assert (tmp_path / name).exists()


def test_what_is_not_complete_has_no_checksum(tmp_path):
    replay = make(tmp_path)
    fill(replay, 13, workers=2)
    replay.save()
    keys = list(mappedfile.read_header(chunks(tmp_path)[0]).spec)
    assert [sealed(path) for path in chunks(tmp_path)] == [keys] * 4 + [[]] * 2
    assert len(load(tmp_path)) == len(replay)


def test_overwritten_values_have_none_until_the_next_save(tmp_path):
    replay = make(tmp_path)
    fill(replay, 20)
    replay.save()
    keys = sealed(chunks(tmp_path)[0])
    data = replay.sample(200)
    new = np.full((200, 3, 3), 999, np.uint16)
    replay.update({'stepid': data['stepid'], 'latent': new})
    assert sealed(chunks(tmp_path)[0]) == [x for x in keys if x != 'latent']
    assert len(load(tmp_path)) == 18  # after a kill here
    flip(chunks(tmp_path)[0], 'step', 0)
    with pytest.warns(UserWarning, match="'step' does not match"):
        load(tmp_path)
    flip(chunks(tmp_path)[0], 'step', 0)
    replay.save()
    assert sealed(chunks(tmp_path)[0]) == keys
    assert (load(tmp_path).sample(50)['latent'][:, :, 0] == 999).any()
    flip(chunks(tmp_path)[0], 'latent', 0)
    with pytest.warns(UserWarning, match="'latent' does not match"):
        load(tmp_path)


def test_values_that_change_while_they_are_summed_up_get_none(tmp_path, monkeypatch):
    replay = make(tmp_path)
    fill(replay, 20)
    data = replay.sample(200)
    change = {'stepid': data['stepid'], 'latent': np.full((200, 3, 3), 999, np.uint16)}
    replay.update(change)
    of = checksums.of

    def slow(values):
        found = of(values)
        replay.update(change)
        return found

    monkeypatch.setattr(checksums, 'of', slow)
    replay.save()
    monkeypatch.undo()
    assert all('latent' not in sealed(path) for path in chunks(tmp_path))
    assert len(load(tmp_path)) == 18


def test_a_save_reads_a_bounded_number_of_bytes(tmp_path, monkeypatch):
    replay = make(tmp_path)
    fill(replay, 41)
    data = replay.sample(400)
    replay.update({'stepid': data['stepid'], 'latent': np.zeros((400, 3, 3), np.uint16)})
    monkeypatch.setattr(storage, 'REFRESH_BYTES', 1)
    for count in range(8):
        assert sum('latent' in sealed(path) for path in chunks(tmp_path)) == count
        replay.save()


def test_files_of_earlier_versions_load(tmp_path, monkeypatch):
    """Without room for checksums."""
    layout, dumps = mappedfile._layout, json.dumps
    with monkeypatch.context() as patch:
        patch.setattr(mappedfile, '_layout', lambda *args: layout(*args[:3], False))
        old = lambda content: dumps({k: content[k] for k in ('size', 'keys')})
        patch.setattr(mappedfile.json, 'dumps', old)
        fill(make(tmp_path), 20)
    assert all(mappedfile.read_header(path).checks == 0 for path in chunks(tmp_path))
    replay = load(tmp_path)
    assert len(replay) == 18
    replay.update({'stepid': replay.sample(5)['stepid'], 'latent': np.zeros((5, 3, 3), 'u2')})
    replay.save()
    assert len(load(tmp_path)) == 18


def test_a_file_that_cannot_be_read_is_skipped(tmp_path, monkeypatch):
    fill(make(tmp_path), 20)
    bad, read = chunks(tmp_path)[1], checksums.of_file

    def fail(path, ranges):
        if path == bad:
            raise OSError(5, os.strerror(5))
        return read(path, ranges)

    monkeypatch.setattr(checksums, 'of_file', fail)
    with pytest.warns(UserWarning, match=r'cannot be read \(Input/output error\) \(5 steps'):
        assert len(load(tmp_path)) == 11
