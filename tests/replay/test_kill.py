"""What a process that is killed leaves behind always loads, and lacks little or nothing."""

import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest

from tests.replay import killed
from tests.replay.test_replay import starts as begins

ROOT = pathlib.Path(__file__).parents[2]
ROUNDS = [5, pytest.param(30, marks=pytest.mark.torture)]
RECENT = 50  # steps of each worker that the capacity holds, however late the last save is


def run_and_kill(folder: pathlib.Path, storage: str, first: int, inserts: int) -> None:
    """Let a process go on with a folder and kill it after some inserts."""
    args = [sys.executable, '-m', 'tests.replay.killed', str(folder), storage, str(first)]
    with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert len(process.stdout.read(inserts)) == inserts
        process.kill()


@pytest.mark.parametrize('rounds', ROUNDS)
@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_killed_processes_leave_what_loads(tmp_path: pathlib.Path, storage: str, rounds: int):
    folder = tmp_path / 'replay'
    rng = random.Random(rounds)
    for attempt in range(rounds):
        first = 1_000_000 * attempt
        run_and_kill(folder, storage, first, rng.randrange(1, 600))
        note = tmp_path / ('inserted' if storage == 'disk' else 'saved')
        safe = int.from_bytes(note.read_bytes(), 'little')
        replay = killed.make(folder, storage)
        replay.load()  # a warning would be an error
        assert len(replay) <= killed.CAPACITY
        spans = [replay._span(replay._first + i) for i in range(len(replay))]
        starts = set()
        if spans:
            data = replay._storage.read(spans, killed.LENGTH)
            starts = set(begins(data))
            ahead = data['step'][:, :1] + np.arange(killed.LENGTH)
            np.testing.assert_array_equal(data['step'], ahead)
            assert (data['env'] == data['env'][:, :1]).all()
            assert (data['image'] == (data['step'] % 256)[..., None, None]).all()
        assert len(starts) == len(replay)
        last = safe - killed.LENGTH + 1
        for worker in range(killed.WORKERS):
            wanted = {(worker, n) for n in range(max(first, last - RECENT), last)}
            assert wanted <= starts
    assert replay.save()['items'] == len(replay)
    assert not list(folder.glob('*.tmp'))
