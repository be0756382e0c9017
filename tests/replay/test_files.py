"""Names, contents and leftovers of chunk files."""

import pathlib

import elements
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from embodied.replay import files

NAME = files.Name('20261129T142940F393847', bytes(range(16)), files.NOWHERE, 3)
ARRAYS = {'dyn/deter': np.arange(6, dtype=np.float32).reshape(3, 2), 'file': np.arange(3)}


@hypothesis.given(uuid=st.binary(min_size=16, max_size=16))
@hypothesis.settings(deadline=None)
def test_base62_is_that_of_elements(uuid: bytes):
    text = files.to_base62(uuid)
    assert text == str(elements.UUID(uuid))
    assert files.from_base62(text) == uuid


def test_name_says_everything():
    text = str(NAME)
    assert text == '20261129T142940F393847-000' + text[26:45] + '-' + '0' * 22 + '-3.npz'
    assert files.parse(text) == NAME


@pytest.mark.parametrize(
    'name',
    ['chunk.npz', '20261129T142940F393847-abc-def-3.npz', f'x{NAME}', f'{NAME}.tmp',
     str(NAME).replace('-000', '-ZZZ')],
)  # fmt: skip
def test_other_names_are_foreign(name: str):
    assert files.parse(name) is None


def test_times_rise(tmp_path: pathlib.Path):
    clock = files.Clock(tmp_path / 'none')
    stamps = [clock() for _ in range(100)]
    assert stamps == sorted(set(stamps))
    assert files.PATTERN.fullmatch(f'{stamps[0]}-{"0" * 22}-{"0" * 22}-1.npz')


@pytest.mark.parametrize('mapped', [False, True])
def test_times_go_on_after_the_newest_of_a_folder(tmp_path: pathlib.Path, mapped: bool):
    for time in ('20991231T235959F999999', '20010101T000000F000000', '20999999T999999F000000'):
        (tmp_path / str(NAME._replace(time=time, mapped=mapped))).touch()
    (tmp_path / '99991231T235959F000000.txt').touch()
    clock = files.Clock(tmp_path)
    assert [clock() for _ in range(2)] == ['21000101T000000F000000', '21000101T000000F000001']


def test_a_chunk_comes_after_those_before_it_whatever_its_name(tmp_path: pathlib.Path):
    """As after an hour back in local time; and names that go round in a circle."""
    ids = [bytes(15) + bytes([i]) for i in range(8)]
    name = lambda i, hour, to: files.Name(f'20261129T{hour:02}0000F000000', ids[i], ids[to], 1)
    old, new = [name(1, 3, 2), name(2, 2, 3), name(3, 4, 0)], [name(4, 3, 0)]
    circle = [name(5, 1, 6), name(6, 0, 5), name(7, 5, 7)]
    for each in (*old, *new, *circle):
        (tmp_path / str(each)).touch()
    wanted = [circle[1], circle[0], new[0], *old, circle[2]]
    found = files.scan(tmp_path).names
    assert [x for x in found if x not in new] == [x for x in wanted if x not in new]
    assert {*found} == {*wanted}


@pytest.mark.parametrize('sync', [False, True])
def test_arrays_come_back(tmp_path: pathlib.Path, sync: bool):
    directory = tmp_path / 'made' / 'here'
    files.write(directory, NAME, {**ARRAYS, 'stepid': np.zeros((3, 20), np.uint8)}, sync)
    assert [x.name for x in directory.iterdir()] == [str(NAME)]
    got, own = files.read(directory, NAME)
    assert own
    assert got.keys() == ARRAYS.keys()
    for key, value in ARRAYS.items():
        np.testing.assert_array_equal(got[key], value)
        assert got[key].dtype == value.dtype
        got[key][:] = 0  # writable


def test_scan_keeps_the_longest_of_a_chunk(tmp_path: pathlib.Path):
    grown = NAME._replace(length=5)
    linked = grown._replace(successor=bytes(15) + b'1')
    other = NAME._replace(time='20261129T142940F000000', uuid=bytes(16))
    for name in (NAME, grown, linked, other):
        (tmp_path / str(name)).touch()
    aside = str(linked).replace('.npz', '.tmp')
    for name in ('foreign.npz', 'notes.txt', aside):
        (tmp_path / name).touch()
    names, unusable, stale = files.scan(tmp_path)
    assert names == [other, linked]
    assert unusable == [('foreign.npz', 'has a foreign name', '')]
    assert sorted(stale) == sorted([str(NAME), str(grown), aside])


def test_scan_of_no_directory_is_empty(tmp_path: pathlib.Path):
    assert files.scan(tmp_path / 'none') == ([], [], [])


def test_files_of_others_are_known_as_such(tmp_path: pathlib.Path):
    np.savez(tmp_path / str(NAME), x=np.zeros(3))
    assert files.read(tmp_path, NAME)[1] is False


def cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def damage(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


def pickle(path: pathlib.Path) -> None:
    np.savez(path, x=np.array([{}, {}, {}], object))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (cut, 'cannot be read'),
        (damage, 'cannot be read'),
        (lambda path: path.write_bytes(b''), 'cannot be read'),
        (lambda path: path.write_bytes(b'text'), 'cannot be read'),
        (lambda path: path.unlink(), 'cannot be read'),
        (pickle, 'cannot be read'),
        (lambda path: np.savez(path), 'does not hold 3 steps'),
        (lambda path: np.savez(path, x=np.zeros(3), y=np.zeros(2)), 'does not hold 3 steps'),
        (lambda path: np.savez(path, x=np.zeros(3), y=np.float32(1)), 'does not hold 3 steps'),
    ],
)
def test_unusable_files_are_value_errors(tmp_path: pathlib.Path, change, message: str):
    files.write(tmp_path, NAME, ARRAYS)
    change(tmp_path / str(NAME))
    with pytest.raises(ValueError, match=message):
        files.read(tmp_path, NAME)
