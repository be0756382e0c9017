"""What a replay says about its size at capacity, and how much there really is."""

import pathlib
import shutil
import types

import numpy as np
import pytest

import embodied
from embodied.replay import estimate

GB = 10**9


def image_step(deter: int = 0) -> dict:
    return {
        'image': np.zeros((64, 64, 3), np.uint8),
        'action': np.int32(0),
        'reward': np.float32(0),
        'is_first': np.bool_(False),
        'is_last': np.bool_(False),
        'is_terminal': np.bool_(False),
        'dyn/deter': np.zeros(deter, np.uint16),
        'dyn/stoch': np.zeros(32, np.uint8),
    }


@pytest.fixture
def machine(monkeypatch):
    """A machine with as much free RAM and disk as a test says."""

    def make(ram: float, disk: float) -> None:
        monkeypatch.setattr(estimate, 'free_memory', lambda: ram)
        monkeypatch.setattr(
            shutil, 'disk_usage', lambda path: types.SimpleNamespace(free=int(disk))
        )

    return make


def lines(tmp_path: pathlib.Path, storage: str, capacity: int = 5_000_000) -> list[str]:
    folder = tmp_path / 'not' / 'there' / 'yet'
    replay = embodied.Replay(65, capacity, folder, chunksize=4, name='replay', storage=storage)
    assert replay.describe() == []
    replay.add(image_step(8192))
    return replay.describe()


def test_bytes_per_step_are_exact(tmp_path: pathlib.Path):
    """The 200M model in bfloat16: at most 0.56 of the 53.3 KB of the reference."""
    replay = embodied.Replay(1, 8, chunksize=8)
    replay.add(image_step(8192))
    step = estimate.bytes_per_step(replay._storage.spec)
    assert step == 12288 + 2 * 8192 + 32 + 4 + 4 + 3 + 20 == 28735
    assert replay.stats()['ram_gb'] * 2**30 == 8 * step
    assert step <= 0.56 * 53_300


def test_what_fits_is_one_line(tmp_path: pathlib.Path, machine):
    machine(200 * GB, 200 * GB)
    assert lines(tmp_path, 'ram') == ['replay at 5,000,000 steps of 28.7 KB: 144 GB of RAM']
    assert lines(tmp_path, 'disk') == ['replay at 5,000,000 steps of 28.7 KB: 144 GB on disk']


def test_ram_and_disk_that_are_too_small_are_told(tmp_path: pathlib.Path, machine):
    machine(20 * GB, 300 * GB)
    _, warning = lines(tmp_path, 'ram')
    assert '144 GB of RAM, but 20 GB' in warning
    assert '--replay.size' in warning
    assert '--replay.storage disk' in warning
    assert len(lines(tmp_path, 'disk')) == 1
    machine(300 * GB, 20 * GB)
    for storage in ('ram', 'disk'):
        _, warning = lines(tmp_path, storage)
        assert 'Warning' in warning
        assert '144 GB of disk, but there is room for 20 GB' in warning
    machine(300 * GB, 300 * GB)
    assert len(lines(tmp_path, 'ram')) == 1


def test_files_that_are_there_count_as_room(tmp_path: pathlib.Path, machine):
    machine(0, 100)
    (tmp_path / 'a').write_bytes(bytes(23))
    assert estimate.free_disk(tmp_path) == 123
    assert estimate.free_disk(tmp_path / 'missing') == 100


def test_the_limit_of_a_container_counts(tmp_path: pathlib.Path, monkeypatch):
    monkeypatch.setattr(estimate, 'CGROUP', tmp_path)
    whole = estimate.free_memory()
    assert whole is None or whole > 2**20
    (tmp_path / 'memory.current').write_text('1000\n')
    (tmp_path / 'memory.max').write_text('5000\n')
    assert estimate.free_memory() == 4000
    (tmp_path / 'memory.max').write_text('max\n')
    assert estimate._group_room() is None


def test_without_capacity_there_is_nothing_to_say(tmp_path: pathlib.Path):
    replay = embodied.Replay(2, directory=tmp_path)
    replay.add(image_step())
    assert replay.describe() == []


def test_a_system_that_tells_nothing_ends_no_run(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(24, 'Too many open files')

    psutil = pytest.importorskip('psutil')
    monkeypatch.setattr(psutil, 'virtual_memory', fail)
    monkeypatch.setattr(estimate.shutil, 'disk_usage', fail)
    monkeypatch.setattr(estimate, 'CGROUP', tmp_path / 'missing')
    assert estimate.free_memory() is None
    assert estimate.free_disk(tmp_path) is None
