"""Processes of a run: restarts, failures, and ends that leave nothing behind."""

import contextlib
import functools
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from embodied.core import processes
from embodied.core.errors import NotFinite, UserError

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 60  # seconds until a test gives up


@pytest.fixture
def group():
    with contextlib.closing(processes.Group()) as group:
        yield group


def note(path, attempt=0):
    """Say the pid and the attempt, and wait."""
    with open(path, 'a') as file:
        file.write(f'{os.getpid()} {attempt}\n')
    threading.Event().wait()


def notes(path, count):
    """The lines of `note`, once there are so many."""
    wait = threading.Event()
    for _ in range(LIMIT * 20):
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [[int(x) for x in line.split()] for line in lines]
        wait.wait(0.05)
    raise AssertionError(f'{len(lines)} of {count} lines')


def fail(error):
    raise error


def gone(pid):
    """Whether a process has ended; one that nobody has waited for counts as ended."""
    try:
        status = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(')')[2].split()[0] == 'Z'


def all_gone(pids):
    wait = threading.Event()
    return any(all(map(gone, pids)) or wait.wait(0.05) for _ in range(LIMIT * 20))


def test_all_that_end_well_finish_the_group(group):
    for index in range(3):
        group.start(f'part{index}', functools.partial(print, index))
    assert group.finished.wait(LIMIT)
    assert group.ended.is_set()
    assert not group.failed.is_set()
    group.check()


def test_one_that_ends_well_is_noticed(group, tmp_path):
    path = tmp_path / 'notes'
    group.start('waits', functools.partial(note, path))
    group.start('ends', functools.partial(print))
    assert group.ended.wait(LIMIT)
    notes(path, 1)
    assert not group.finished.is_set()


@pytest.mark.parametrize(
    ('error', 'kind', 'text'),
    [
        (UserError('too small'), UserError, '^too small$'),
        (NotFinite('nan'), NotFinite, '^nan$'),
        (
            FloatingPointError('why'),
            RuntimeError,
            "(?s)'part' failed:.*FloatingPointError: why",
        ),
        (ZeroDivisionError('why'), RuntimeError, "(?s)'part' failed:.*ZeroDivisionError: why"),
        (SystemExit(5), RuntimeError, "'part' ended with code 5"),
    ],
)
def test_an_error_reaches_the_parent_and_is_not_tried_again(group, error, kind, text):
    group.start('part', functools.partial(fail, error), restarts=3)
    assert group.failed.wait(LIMIT)
    with pytest.raises(kind, match=text):
        group.check()
    assert not group.finished.is_set()


def test_what_was_killed_is_started_anew_as_often_as_allowed(group, tmp_path, capfd):
    path = tmp_path / 'notes'
    process = group.start('part', functools.partial(note, path), restarts=2)
    for attempt in range(3):
        pid, seen = notes(path, attempt + 1)[attempt]
        assert seen == attempt
        assert pid == process.pid
        os.kill(pid, signal.SIGKILL)
    assert group.failed.wait(LIMIT)
    with pytest.raises(RuntimeError, match="'part' was ended by SIGKILL"):
        group.check()
    assert '2 of 2 an hour: run.env_restarts' in capfd.readouterr().out


def test_mistakes_of_users_are_not_tried_again(group):
    group.start('env', functools.partial(fail, UserError('space')), restarts=9, always=True)
    assert group.failed.wait(LIMIT)
    with pytest.raises(UserError, match='space'):
        group.check()


@pytest.mark.parametrize(('error', 'restarts'), [(SystemExit(5), 1), (ZeroDivisionError(), 0)])
def test_an_environment_that_ends_without_a_word_is_started_anew(group, capfd, error, restarts):
    group.start('env', functools.partial(fail, error), restarts=1, always=True)
    assert group.failed.wait(LIMIT)
    assert capfd.readouterr().out.count('It is restarted') == restarts


def deaf(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(path)


def parent(path):
    """Start a child that does not listen, and wait."""
    multiprocessing.get_context('spawn').Process(target=deaf, args=(path,)).start()
    note(path)


def test_the_end_is_by_force_where_it_must_be_and_takes_children_along(
    group, tmp_path, monkeypatch
):
    monkeypatch.setattr(processes, 'GRACE', 0.5)
    path = tmp_path / 'notes'
    group.start('part', functools.partial(parent, path))
    pids = [pid for pid, _ in notes(path, 2)]
    group.end()
    assert all_gone(pids)
    group.check()  # that was expected


def fork_and_wait(path):
    if os.fork():
        note(path)
    threading.Event().wait()


def test_an_end_is_noticed_while_a_forked_child_goes_on(group, tmp_path):
    path = tmp_path / 'notes'
    group.start('part', functools.partial(fork_and_wait, path))
    ((pid, _),) = notes(path, 1)
    os.kill(pid, signal.SIGKILL)
    assert group.failed.wait(LIMIT)


def fail_at_the_end(path):
    def leave(number, frame):
        raise UserError('the disk is full')

    signal.signal(signal.SIGTERM, leave)
    note(path)


def test_an_error_at_the_end_is_not_lost(group, tmp_path):
    path = tmp_path / 'notes'
    group.start('part', functools.partial(fail_at_the_end, path))
    notes(path, 1)
    group.end()
    with pytest.raises(UserError, match='the disk is full'):
        group.check()


def test_a_restart_takes_what_the_process_had_started_along(group, tmp_path):
    path = tmp_path / 'notes'
    process = group.start('part', functools.partial(parent, path), restarts=1)
    first = notes(path, 2)
    os.kill(process.pid, signal.SIGKILL)
    notes(path, 4)
    assert all_gone([pid for pid, _ in first])


KILLED = """
import functools, pathlib, sys
from embodied.core import processes
from tests.core import test_processes as t

group = processes.Group()
for index in range(2):
    group.start(f'part{index}', functools.partial(t.note, pathlib.Path(sys.argv[1])))
group.finished.wait()
"""


def test_nothing_is_left_when_the_parent_is_killed(tmp_path):
    path = tmp_path / 'notes'
    command = [sys.executable, '-c', KILLED, str(path)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        pids = [pid for pid, _ in notes(path, 2)]
        process.kill()
    assert all_gone(pids)


@pytest.mark.parametrize('error', [OSError(1, 'forbidden'), AttributeError('pidfd_open')])
def test_ends_are_noticed_where_the_system_has_no_descriptors_of_processes(monkeypatch, error):
    def refuse(pid):
        raise error

    monkeypatch.setattr(os, 'pidfd_open', refuse)
    with contextlib.closing(processes.Group()) as group:
        group.start('short', functools.partial(int, 3), 0)
        assert group.finished.wait(60)
