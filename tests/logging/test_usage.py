"""Resource metrics, rates and timers."""

import gc
import subprocess
import sys

import elements
import numpy as np
import pytest

from embodied import logging
from embodied.logging import usage


def test_psutil_counts_the_process_tree():
    tool = logging.Usage(psutil=True)
    code = "import sys; x = b'x' * 2**27; print(len(x), flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        alone = tool.stats()['psutil/proc_ram_gb']
        child.stdout.readline()
        stats = tool.stats()
        assert stats['psutil/proc_ram_gb'] > 0.125
    finally:
        child.communicate()
    assert alone > 0
    assert set(stats) == {
        f'psutil/{name}'
        for name in (
            'proc_cpu_usage',
            'proc_ram_frac',
            'proc_ram_gb',
            'total_cpu_count',
            'total_cpu_frac',
            'total_ram_frac',
            'total_ram_total_gb',
            'total_ram_used_gb',
            'total_ram_avail_gb',
        )
    }
    assert all(np.isfinite(value) and value >= 0 for value in stats.values())


def test_a_missing_tool_is_silently_absent(monkeypatch, capfd):
    monkeypatch.setenv('PATH', '')
    assert logging.Usage(nvsmi=True).stats() == {}
    assert usage.nvidia_smi() == {}
    assert capfd.readouterr() == ('', '')


@pytest.mark.parametrize(('text', 'code'), [('No devices were found', 6), ('[N/A], 1, 2', 0)])
def test_a_tool_without_an_answer_is_silently_absent(monkeypatch, tmp_path, text, code):
    fake_nvidia_smi(monkeypatch, tmp_path, text, code)
    assert logging.Usage(nvsmi=True).stats() == {}


def test_nvidia_smi(monkeypatch, tmp_path):
    fake_nvidia_smi(monkeypatch, tmp_path, '50, 25, 2048\\n100, 0, 512\\n', 0)
    assert logging.Usage(nvsmi=True).stats() == {
        'nvsmi/compute_avg/gpu0': 0.5,
        'nvsmi/memory_avg/gpu0': 0.25,
        'nvsmi/memory_used_gb/gpu0': 2,
        'nvsmi/compute_avg/gpu1': 1,
        'nvsmi/memory_avg/gpu1': 0,
        'nvsmi/memory_used_gb/gpu1': 0.5,
    }


def fake_nvidia_smi(monkeypatch, tmp_path, text, code):
    path = tmp_path / 'nvidia-smi'
    path.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
    path.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path))


@pytest.mark.parametrize('error', [OSError(24, 'Too many open files'), KeyError('pid')])
def test_a_tool_that_fails_is_absent_until_it_works_again(monkeypatch, error):
    """Such as psutil in a process that has no file descriptors left."""

    def fail(*args, **kwargs):
        raise error

    psutil = pytest.importorskip('psutil')
    with monkeypatch.context() as broken:
        broken.setattr(psutil.Process, 'children', fail)
        tool = logging.Usage(psutil=True, malloc=True)  # it reads the system here already
        broken.setattr(usage.tracemalloc, 'get_traced_memory', fail)
        assert tool.stats() == {}
    usage.tracemalloc.stop()
    assert {x.split('/')[0] for x in tool.stats()} == {'psutil', 'malloc'}
    monkeypatch.setattr(psutil, 'virtual_memory', fail)
    assert {x.split('/')[0] for x in tool.stats()} == {'malloc'}
    usage.tracemalloc.stop()


def test_garbage_collector():
    callbacks = list(gc.callbacks)
    tool = logging.Usage(gc=True)
    try:
        cycle = []
        cycle.append(cycle)
        del cycle
        gc.collect()
        stats = tool.stats()
        assert stats['gc/gen2/calls'] == 1
        assert stats['gc/gen2/collected'] >= 1
        assert stats['gc/gen2/seconds'] > 0
        assert 'gc/gen2/calls' not in tool.stats()
    finally:
        gc.callbacks[:] = callbacks


def test_everything_off():
    assert logging.Usage().stats() == {}


def test_rate():
    time = [10.0]
    rate = logging.Rate(now=lambda: time[0])
    for _ in range(6):
        rate.add(5)
    time[0] += 3
    assert rate.result() == 10
    time[0] += 1
    assert rate.result() == 0
    rate.add()
    time[0] += 0.5
    assert rate.result() == 2


def test_timers(monkeypatch):
    timer = elements.timer
    own = elements.Timer()
    monkeypatch.setattr(timer, 'global_timer', own)
    monkeypatch.setattr(timer, 'stats', own.stats)
    assert logging.timer_stats() == {}
    with own.section('outer'), own.section('inner'):
        pass
    stats = logging.timer_stats()
    assert (stats['outer/count'], stats['outer/inner/count']) == (1, 1)
    assert 'outer' in stats['summary']
    with own.section('outer'):
        pass
    stats = logging.timer_stats()
    assert {key.rpartition('/')[0] for key in stats} == {'outer', ''}  # '' of the summary
    assert all(np.isfinite(value) for key, value in stats.items() if key != 'summary')
