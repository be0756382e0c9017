"""Errors of files that pass are waited for; others are raised at once."""

import errno

import pytest

from embodied.core import retries


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(retries, 'PAUSES', (0, 0))


def failing(code, times):
    """A function that fails so often, and the list of its calls."""
    calls = []

    def fn():
        calls.append(None)
        if len(calls) <= times:
            raise OSError(code, 'broken')
        return 'done'

    return fn, calls


@pytest.mark.parametrize('code', [errno.EIO, errno.ESTALE])
def test_what_passes_is_waited_for(code, capsys):
    fn, _ = failing(code, 2)
    assert retries.persistent(fn, 'Cannot write it') == 'done'
    assert capsys.readouterr().out == 2 * 'Warning: Cannot write it (broken); trying again\n'


def test_what_does_not_pass_is_raised(capsys):
    fn, calls = failing(errno.EIO, 3)
    with pytest.raises(OSError, match='broken'):
        retries.persistent(fn, 'Cannot write it')
    assert len(calls) == 3


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EACCES, errno.ENOENT])
def test_what_waiting_does_not_mend_is_raised_at_once(code):
    fn, calls = failing(code, 1)
    with pytest.raises(OSError, match='broken'):
        retries.persistent(fn, 'Cannot write it')
    assert len(calls) == 1
