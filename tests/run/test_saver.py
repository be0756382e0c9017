"""When checkpoints are saved, which stay, and what a full disk does."""

import errno

import pytest

from embodied.core import checkpoint, snapshot
from embodied.core.errors import UserError
from tests.run.harness import Run


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
