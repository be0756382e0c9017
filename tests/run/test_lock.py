"""One run per folder."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import pytest

import embodied
from embodied.core.errors import UserError
from embodied.run import lock
from tests.run.harness import Run


def test_a_second_run_is_refused(tmp_path):
    with lock.held(tmp_path), pytest.raises(UserError, match=f'{tmp_path}.*--logdir'):
        Run(tmp_path).train()
    assert list(tmp_path.iterdir()) == []
    assert Run(tmp_path).train().step == 100


def test_a_run_holds_its_folder(tmp_path):
    class Second(Run):
        def make_agent(self):
            with pytest.raises(UserError, match='Another run'):
                Run(tmp_path, steps=50).train()
            return super().make_agent()

    run = Second(tmp_path).train()
    assert run.step == 100
    assert not (tmp_path / '.lock').exists()


def test_a_process_that_is_killed_lets_go(tmp_path):
    code = (
        'import os, signal\nfrom embodied.run import lock\n'
        f'with lock.held({str(tmp_path)!r}): os.kill(os.getpid(), signal.SIGKILL)'
    )
    assert subprocess.run([sys.executable, '-c', code]).returncode == -9
    assert (tmp_path / '.lock').exists()
    with lock.held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_child_of_a_process_that_is_killed_holds_nothing(tmp_path):
    script = textwrap.dedent(f"""
        import os, signal
        from embodied.run import lock
        with lock.held({str(tmp_path)!r}):
            child = os.fork()
            if not child:
                os.close(1)
                signal.pause()
            print(child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    command = [sys.executable, '-c', script]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    try:
        with lock.held(tmp_path):
            pass
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_only_folders_that_it_made_and_that_stay_empty_go(tmp_path):
    with lock.held(tmp_path / 'a' / 'b'):
        pass
    assert list(tmp_path.iterdir()) == []
    with lock.held(tmp_path / 'a' / 'b'):
        (tmp_path / 'a' / 'file').touch()
    assert [x.name for x in (tmp_path / 'a').iterdir()] == ['file']


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / 'file').touch()
    with (
        pytest.raises(UserError, match='Cannot write to --logdir'),
        lock.held(tmp_path / 'file/x'),
    ):
        pass


def test_a_file_system_without_locks_does_not_stop_a_run(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', refuse)
    assert Run(tmp_path).train().step == 100


@pytest.fixture
def trained(tmp_path):
    """A folder of a run, reached by another path, with more items than a small capacity."""
    Run(tmp_path / 'run', report_every=-1.0).train_eval()
    (tmp_path / 'link').symlink_to(tmp_path / 'run')
    (tmp_path / 'other').mkdir()
    for name in ('replay', 'replay_eval'):
        (tmp_path / 'other' / name).symlink_to(tmp_path / 'run' / name)
    return tmp_path


def contents(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.parametrize('folder', ['replay', 'replay_eval'])
@pytest.mark.parametrize('place', ['run', 'link', 'other'])
def test_a_second_user_of_a_replay_is_refused_and_deletes_nothing(trained, folder, place):
    before = contents(trained / 'run' / folder)
    holder = embodied.Replay(5, directory=trained / 'run' / folder)
    second = Run(trained / place, capacity=10, steps=200)
    with lock.replays(holder), pytest.raises(UserError, match=r'uses the replay in .*--logdir'):
        second.train_eval()
    assert contents(trained / 'run' / folder) == before
    second.train_eval()
    assert len(second.replay) == 10


def test_two_runs_with_one_replay_under_different_logdirs(trained):
    class First(Run):
        def make_logger(self):  # made before the replay, and used after it
            logger = super().make_logger()
            rewind = logger.rewind

            def late(step):
                with pytest.raises(UserError, match='Another run uses the replay'):
                    Run(trained / 'other', steps=300).train()
                return rewind(step)

            logger.rewind = late
            return logger

    assert First(trained / 'run', steps=200).train().step == 200


def test_a_replay_without_a_folder_needs_no_lock(tmp_path):
    with lock.replays(embodied.Replay(5), object(), None):
        pass


def test_one_folder_of_two_replays_is_locked_once(tmp_path):
    (tmp_path / 'link').symlink_to(tmp_path)
    both = [embodied.Replay(5, directory=tmp_path / x / 'replay') for x in ('', 'link')]
    again = lock.replays(both[0])
    with lock.replays(*both), pytest.raises(UserError, match='uses the replay'), again:
        pass


def test_a_file_that_cannot_be_removed_hides_no_error_and_holds_no_lock(tmp_path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def fail():
        with monkeypatch.context() as patch, lock.held(tmp_path):
            patch.setattr('pathlib.Path.unlink', refuse)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with lock.held(tmp_path):
        pass
