"""The journal of requests, as processes that are killed leave it."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from embodied.core.rpc import journal

ROOT = pathlib.Path(__file__).parents[2]
ONE, OTHER = b'1' * 16, b'2' * 16

WRITE = """
import os, signal, sys
from embodied.core.rpc.journal import Journal

found = Journal(sys.argv[1])
for number in range(100):
    found.note(b'1' * 16, 'add', number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_noted_is_there_after_a_kill(tmp_path):
    path = tmp_path / 'folder' / 'journal'
    result = subprocess.run([sys.executable, '-c', WRITE, str(path)], cwd=ROOT)
    assert result.returncode == -signal.SIGKILL
    found = journal.Journal(path)
    assert found.last(ONE, 'add') == 99
    assert found.last(ONE, 'update') == found.last(OTHER, 'add') == -1
    found.note(OTHER, 'add', 0)
    found.note(ONE, 'add', 100)
    again = journal.Journal(path)
    assert (again.last(ONE, 'add'), again.last(OTHER, 'add')) == (100, 0)


def test_the_first_ones_give_way(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, 'ROWS', 3)
    found = journal.Journal(tmp_path / 'journal')
    for index in range(5):
        found.note(bytes([index]) * 16, 'add', index)
    for each in (found, journal.Journal(tmp_path / 'journal')):
        assert [each.last(bytes([i]) * 16, 'add') for i in range(5)] == [-1, -1, 2, 3, 4]


@pytest.mark.parametrize('size', [0, 1000])
def test_a_file_that_is_none_begins_anew(tmp_path, size):
    path = tmp_path / 'journal'
    path.write_bytes(os.urandom(size))
    assert journal.Journal(path).last(ONE, 'add') == -1
