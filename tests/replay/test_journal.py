"""Requests that come again after a kill: all of their steps are in once, wherever it fell."""

import errno
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import embodied
from embodied.replay import chunk, journal, mapped, storage
from tests.replay.test_replay import all_starts, step

ROOT = pathlib.Path(__file__).parents[2]
ONE, OTHER = b'1' * 16, b'2' * 16

NOTE = """
import os, pathlib, signal, sys
from embodied.replay.journal import Journal

found = Journal(pathlib.Path(sys.argv[1]))
for number in range(100):
    found.note((b'1' * 16, number))
os.kill(os.getpid(), signal.SIGKILL)
"""


def make(directory: pathlib.Path, storage: str = 'disk', **options) -> embodied.Replay:
    return embodied.Replay(1, directory=directory, chunksize=3, storage=storage, **options)


def batch(number: int, workers: list[int]) -> dict:
    rows = [step(number, worker) for worker in workers]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def send(replay: embodied.Replay, number: int, workers: list[int]) -> None:
    """Insert as a request whose rows are of step `number`, and of `number` + 100 the second."""
    steps = batch(number, workers)
    for row, worker in enumerate(workers):
        steps['step'][row] += 100 * workers[:row].count(worker)
    replay.add_batch(steps, workers, (ONE, number))


def test_what_was_noted_is_there_after_a_kill(tmp_path):
    folder = tmp_path / 'folder'
    result = subprocess.run([sys.executable, '-c', NOTE, str(folder)], cwd=ROOT)
    assert result.returncode == -signal.SIGKILL
    found = journal.Journal(folder)
    assert all(found.has((ONE, number)) for number in range(100))
    assert not found.has((ONE, 100))
    assert not found.has((OTHER, 0))
    found.note((OTHER, 0))
    assert journal.Journal(folder).has((OTHER, 0))


def test_requests_may_come_in_any_order(tmp_path):
    found = journal.Journal(tmp_path)
    for number in (5, 3, 200, 77):
        found.note((ONE, number))
    for each in (found, journal.Journal(tmp_path)):
        known = [number for number in range(250) if each.has((ONE, number))]
        assert known == [3, 5, 72, 77, 200]  # 72 is further back than any that is under way


def test_the_clients_that_were_silent_give_way(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, 'CLIENTS', 3)
    found = journal.Journal(tmp_path)
    for index in (0, 1, 2, 0, 3, 4):
        found.note((bytes([index]) * 16, 1))
    for each in (found, journal.Journal(tmp_path)):
        assert [each.has((bytes([i]) * 16, 1)) for i in range(5)] == [1, 0, 0, 1, 1]
        assert not each.has((bytes([4]) * 16, 0))


@pytest.mark.parametrize('size', [0, 1000])
def test_a_file_that_is_none_begins_anew(tmp_path, size):
    (tmp_path / journal.FILENAME).write_bytes(os.urandom(size))
    assert not journal.Journal(tmp_path).has((ONE, 0))


@pytest.mark.parametrize('kind', ['ram', 'disk'])
def test_a_request_is_inserted_once(tmp_path, kind):
    replay = make(tmp_path, kind)
    for number in (0, 1, 1, 0, 2):
        send(replay, number, [0, 1])
    assert all_starts(replay) == [(w, n) for n in range(3) for w in range(2)]
    assert replay.received((ONE, 2))
    assert not replay.received((ONE, 3))
    replay.save()
    again = make(tmp_path, kind)
    again.load()
    send(again, 2, [0, 1])
    assert sorted(all_starts(again)) == sorted(all_starts(replay))


def test_without_a_directory_there_is_nothing_to_know(tmp_path):
    replay = embodied.Replay(1)
    replay.add_batch(batch(0, [0]), [0], (ONE, 0))
    assert not replay.received((ONE, 0))
    assert len(replay) == 1


class Killed(Exception):
    """Ends an insert where a kill would; mapped files then hold what they would hold."""


POINTS = {
    'before the steps': (storage.blocks, 'write'),
    'before the decision': (journal.Journal, 'commit'),
    'before they count': (mapped.MappedChunk, 'filled'),
    'before they are noted': (journal.Journal, 'settle'),
    'before the last note': (journal.Journal, 'note'),
    'before a new chunk is named': (chunk.Chunk, 'link'),
}


@pytest.mark.parametrize('nth', [1, 2, 3])
@pytest.mark.parametrize('workers', [[0, 1, 2], [0, 1, 0, 0, 0, 1]], ids=['unique', 'repeated'])
@pytest.mark.parametrize('point', POINTS)
def test_wherever_a_kill_falls(tmp_path, monkeypatch, point, workers, nth):
    replay = make(tmp_path)
    for number in range(2):
        send(replay, number, workers)
    owner, name = POINTS[point]
    original, calls = getattr(owner, name), [0]

    def kill(*args):
        calls[0] += 1
        if calls[0] == nth:
            raise Killed
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        sent = 2
        try:
            while sent < 6:  # with chunks of 3 steps, some begin here
                send(replay, sent, workers)
                sent += 1
        except Killed:
            pass
    for _ in range(2):  # the next process may be killed as well
        replay = make(tmp_path)
        replay.load()
    for number in range(sent, 7):
        send(replay, number, workers)
    wanted = [
        (worker, number + 100 * workers[:row].count(worker))
        for number in range(7)
        for row, worker in enumerate(workers)
    ]
    assert sorted(all_starts(replay)) == sorted(wanted)
    again = make(tmp_path)
    again.load()
    assert sorted(all_starts(again)) == sorted(wanted)


def test_a_large_request_after_small_ones(tmp_path, monkeypatch):
    replay, workers = make(tmp_path), list(range(300))
    send(replay, 0, workers[:2])
    monkeypatch.setattr(journal.Journal, 'settle', lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        send(replay, 1, workers)
    monkeypatch.undo()
    again = make(tmp_path)
    again.load()
    assert len(again) == 302
    assert again.received((ONE, 1))


def test_without_room_for_the_list_memory_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    def refuse(*args):
        raise OSError(errno.EROFS, 'Read-only file system')

    monkeypatch.setattr(journal, 'Journal', refuse)
    replay = embodied.replay.Replay(2, directory=tmp_path)
    for number in range(3):
        replay.add_batch({'x': np.zeros((1, 2), np.float32)}, [0], (b'c' * 16, number))
    assert len(replay) == 2
    assert capsys.readouterr().out.count('Warning: ') == 1


def test_a_disk_that_is_full_when_requests_are_written_down_is_one_sentence(
    tmp_path, monkeypatch
):
    replay = embodied.replay.Replay(2, directory=tmp_path, storage='disk')
    rows = {'x': np.zeros((1, 2), np.float32)}
    replay.add_batch(rows, [0], (b'c' * 16, 0))

    def refuse(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal.Journal, 'commit', refuse)
    with pytest.raises(embodied.UserError, match='finds no room'):
        replay.add_batch(rows, [0], (b'c' * 16, 1))
    monkeypatch.undo()
    replay.add_batch(rows, [0], (b'c' * 16, 1))
    assert len(replay) == 1
