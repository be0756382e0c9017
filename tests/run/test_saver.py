"""When checkpoints are saved, which stay, and what a full disk does."""

import errno
import os
import pathlib

import pytest

from embodied.checkpoint import checkpoint, snapshot
from embodied.core import retries
from embodied.core.errors import NotFinite, UserError
from tests.run.harness import Agent, Run


def kept_steps(logdir):
    folders = sorted(x for x in (logdir / 'ckpt').iterdir() if snapshot.manifest(x))
    return [checkpoint.read(x, ['step'])['step'] for x in folders]


def test_permanent_ones_every_so_many_steps(tmp_path):
    run = Run(tmp_path, steps=200, envs=3, keep_every=50.0, train_ratio=1.0).train()
    # The first saves at or after each multiple, and the last one.
    assert kept_steps(tmp_path) == [60, 108, 156, run.step]
    permanent = [x for x in (tmp_path / 'ckpt').iterdir() if snapshot.is_permanent(x)]
    assert len(permanent) == 4 - (run.step // 50 == 156 // 50)


def test_a_resume_goes_on_with_permanent_ones(tmp_path):
    for steps in (70, 120, 180):
        Run(tmp_path, steps=steps, keep_every=50.0).train()
    assert kept_steps(tmp_path) == [50, 100, 150, 180]


def test_none_are_permanent_by_default(tmp_path):
    Run(tmp_path, save_every=-1.0, keep=2).train()
    assert kept_steps(tmp_path) == [90, 100]


@pytest.fixture
def full(monkeypatch):
    """A disk that is full while full[0] says so."""
    state, write = [False], snapshot.write_file

    def write_file(path, content):
        if state[0]:
            raise OSError(errno.ENOSPC, 'No space left on device')
        write(path, content)

    monkeypatch.setattr(snapshot, 'write_file', write_file)
    return state


def test_a_full_disk_does_not_end_the_run(tmp_path, capsys, full):
    class Filling(Run):
        def make_logger(self):
            logger = super().make_logger()
            increment = logger.step.increment

            def noted():
                increment()
                full[0] = 35 <= self.step < 75

            logger.step.increment = noted
            return logger

    Filling(tmp_path, save_every=-1.0, keep=9).train()
    assert kept_steps(tmp_path) == [10, 20, 30, 80, 90, 100]
    out = capsys.readouterr().out
    assert out.count('Warning: no checkpoint at step') == 4
    assert 'at step 40: [Errno 28] No space left on device' in out


def test_a_disk_that_is_full_at_the_end_is_an_error(tmp_path, full):
    Run(tmp_path, steps=50).train()
    full[0] = True
    with pytest.raises(UserError, match=r'step 60 could not be saved: .*No space.* stays'):
        Run(tmp_path, steps=60).train()
    full[0] = False
    run = Run(tmp_path, steps=70).train()
    assert run.agent.trained_at == list(range(51, 71))


def test_the_end_does_not_promise_an_earlier_one_that_is_not_there(tmp_path, full):
    full[0] = True
    with pytest.raises(UserError, match=r'step 60 could not be saved.*There is no earlier'):
        Run(tmp_path, steps=60, save_every=0.0).train()


@pytest.mark.parametrize('times', [1, 99])
@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_disk_that_fails_for_a_moment(tmp_path, monkeypatch, capsys, storage, times):
    """Both storages warn, try again, and end with one sentence where it does not help."""

    class Failing(Run):
        def make_replay(self, *args, **kwargs):
            return super().make_replay(*args, storage=storage, **kwargs)

        def make_logger(self):
            monkeypatch.setattr(os, 'replace', failing)
            return super().make_logger()

    left, replace = [None] * times, os.replace

    def failing(source, target):
        if left and pathlib.Path(target).suffix in ('.npz', '.chunk'):
            left.pop()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        replace(source, target)

    monkeypatch.setattr(retries, 'PAUSES', (0, 0))
    run = Failing(tmp_path, save_every=0.0)
    if times > 1:
        with pytest.raises(UserError, match=os.strerror(errno.ESTALE)):
            run.train()
    else:
        assert run.train().step == 100
    assert (
        f'Warning: Cannot {"save" if storage == "ram" else "write"}' in capsys.readouterr().out
    )


def test_what_was_learned_is_saved_when_the_replay_takes_no_more(tmp_path, monkeypatch):
    class Full(Run):
        def make_replay(self, *args, **kwargs):
            replay = super().make_replay(*args, **kwargs)
            add = replay.add_batch

            def failing(*args):
                if self.step == 50:
                    raise UserError('the disk is full')
                add(*args)

            replay.add_batch = failing
            return replay

    with pytest.raises(UserError, match='the disk is full'):
        Full(tmp_path, save_every=0.0).train()
    assert kept_steps(tmp_path) == [50]


def test_an_agent_that_diverged_in_an_evaluation_replaces_no_checkpoint(tmp_path):
    class Diverging(Agent):
        def policy(self, carry, obs, mode='train'):
            if mode == 'eval' and self.updates > 12:
                raise NotFinite('the action is nan')
            return super().policy(carry, obs, mode)

    run = Run(tmp_path, make_agent=Diverging, report_every=-1.0)
    with pytest.raises(NotFinite):
        run.train_eval()
    data = checkpoint.read(tmp_path / 'ckpt', ['agent'])['agent']
    assert data['updates'] <= 12 < run.agent.updates


def make_file(path):
    path.touch()


def make_dangling_link(path):
    path.symlink_to('nowhere')


@pytest.mark.parametrize('make', [make_file, make_dangling_link])
def test_a_file_in_place_of_the_checkpoints_is_noticed_at_the_start(tmp_path, make):
    make(tmp_path / 'ckpt')
    run = Run(tmp_path)
    with pytest.raises(UserError, match=r'ckpt is no folder'):
        run.train()
    assert run.agent is None
    assert os.listdir(tmp_path) == ['ckpt']


def test_a_folder_in_place_of_latest_is_noticed_at_the_start(tmp_path):
    (tmp_path / 'ckpt' / 'latest').mkdir(parents=True)
    with pytest.raises(UserError, match=r'latest is a folder'):
        Run(tmp_path).train()


def test_a_file_in_place_of_the_replay_is_noticed_at_the_start(tmp_path):
    (tmp_path / 'replay').touch()
    run = Run(tmp_path)
    with pytest.raises(UserError, match=r'Cannot write to --logdir .*replay: File exists'):
        run.train()
    assert not run.envs


def test_all_is_saved_before_the_first_report_which_compiles(tmp_path):
    """A signal meanwhile ends the process at once."""
    found = []

    class Reporting(Agent):
        def report(self, carry, data):
            found.append((kept_steps(tmp_path), int(self.run.logger.step)))
            return super().report(carry, data)

    Run(tmp_path, make_agent=Reporting, report_every=-1.0).train()
    (saved, step), *later = found
    assert saved == [step]
    assert later[-1][0] != [later[-1][1]]  # once is enough
