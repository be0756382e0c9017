"""What a run costs: processor, memory, accelerator, rates and timers.

A tool that is not installed, does not answer, or fails, such as for want of file descriptors,
is silently absent: no figure is worth a run.
"""

import gc
import importlib.util
import shutil
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

GIB = 1024**3


class Usage:
    """Read resource metrics of the tools that are switched on, named TOOL/METRIC.

    >>> usage = Usage(psutil=True)
    >>> usage.stats()['psutil/proc_ram_gb'] > 0
    True
    """

    def __init__(
        self,
        psutil: bool = False,
        nvsmi: bool = False,
        gputil: bool = False,
        malloc: bool = False,
        gc: bool = False,
    ):
        makers: dict[str, tuple[bool, Callable]] = {
            'psutil': (psutil and _is_installed('psutil'), _Psutil),
            'nvsmi': (nvsmi and bool(shutil.which('nvidia-smi')), lambda: nvidia_smi),
            'gputil': (gputil and _is_installed('GPUtil'), lambda: gputil_stats),
            'malloc': (malloc, lambda: malloc_stats),
            'gc': (gc, _Collector),
        }
        self._makers = {name: make for name, (is_on, make) in makers.items() if is_on}
        self._tools: dict[str, Callable[[], dict[str, float]]] = {}
        for name in self._makers:
            self._read(self._tool, name)

    def stats(self) -> dict[str, float]:
        """Return all metrics, rates and counts since the last call. Raises nothing."""
        stats = {}
        for name in self._makers:
            found = self._read(lambda name: self._tool(name)(), name)
            stats.update({f'{name}/{key}': value for key, value in (found or {}).items()})
        return stats

    def _tool(self, name: str) -> Callable[[], dict[str, float]]:
        """Return a tool, which is made when that works for the first time."""
        if name not in self._tools:
            self._tools[name] = self._makers[name]()
        return self._tools[name]

    @staticmethod
    def _read(read: Callable, name: str) -> Any:
        try:
            return read(name)
        except Exception:  # whatever it is, it only concerns figures
            return None


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Rate:
    """Count per second between two results.

    >>> time = iter([0.0, 2.0])
    >>> rate = Rate(now=lambda: next(time))
    >>> rate.add(10)
    >>> rate.result()
    5.0
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._start = now()
        self._count = 0.0

    def add(self, amount: float = 1) -> None:
        """Count."""
        self._count += amount

    def result(self) -> float:
        """Return the rate since the last result, and start anew."""
        now = self._now()
        rate = self._count / max(now - self._start, 1e-9)
        self._start, self._count = now, 0.0
        return rate


def timer_stats() -> dict[str, Any]:
    """Return seconds and counts by section of elements' global timer, and start anew.

    Guarded: the timer itself raises before its first section has ended, and reports infinite
    times for sections that were not entered since the last call.

    >>> with elements.timer.section('sleep'):
    ...     pass
    >>> timer_stats()['sleep/count']
    1
    """
    from elements import timer

    if not timer.global_timer.paths:
        return {}
    stats = timer.stats()
    idle = {key[: -len('/count')] for key in stats if key.endswith('/count') and not stats[key]}
    return {key: value for key, value in stats.items() if key.rpartition('/')[0] not in idle}


class _Psutil:
    """Processor and memory of this process with its children, and of the machine."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._time = time.monotonic()
        self._busy, _ = self._tree()
        psutil.cpu_percent()  # counts from here

    def __call__(self) -> dict[str, float]:
        now = time.monotonic()
        busy, ram = self._tree()
        seconds = sum(max(0.0, x - self._busy.get(pid, 0.0)) for pid, x in busy.items())
        memory = self._psutil.virtual_memory()
        stats = {
            'proc_cpu_usage': seconds / max(now - self._time, 1e-9),  # in cores
            'proc_ram_frac': ram / memory.total,
            'proc_ram_gb': ram / GIB,
            'total_cpu_count': float(self._psutil.cpu_count()),
            'total_cpu_frac': self._psutil.cpu_percent() / 100,
            'total_ram_frac': memory.percent / 100,
            'total_ram_total_gb': memory.total / GIB,
            'total_ram_used_gb': memory.used / GIB,
            'total_ram_avail_gb': memory.available / GIB,
        }
        self._busy, self._time = busy, now
        return stats

    def _tree(self) -> tuple[dict[int, float], int]:
        """Processor seconds by process, and bytes of all of them together."""
        busy, ram = {}, 0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                times = process.cpu_times()
                ram += process.memory_info().rss
            except self._psutil.Error:  # it ended just now
                continue
            busy[process.pid] = times.user + times.system
        return busy, ram


class _Collector:
    """Runs of Python's garbage collector, by generation."""

    def __init__(self) -> None:
        self._stats: dict[str, float] = {}
        self._start = 0.0
        gc.callbacks.append(self._callback)

    def __call__(self) -> dict[str, float]:
        stats, self._stats = self._stats, {}
        return stats

    def _callback(self, phase: str, info: dict[str, int]) -> None:
        if phase == 'start':
            self._start = time.monotonic()
            return
        values = {
            'calls': 1,
            'collected': info['collected'],
            'seconds': time.monotonic() - self._start,
        }
        for key, value in values.items():
            name = f'gen{info["generation"]}/{key}'
            self._stats[name] = self._stats.get(name, 0.0) + value


def nvidia_smi() -> dict[str, float]:
    """Return load and memory of each accelerator, {} if the tool does not answer.

    >>> stats = nvidia_smi()
    >>> all(0 <= v <= 1 for k, v in stats.items() if k.startswith('compute_avg/'))
    True
    """
    fields = 'utilization.gpu,utilization.memory,memory.used'
    command = ['nvidia-smi', f'--query-gpu={fields}', '--format=csv,noheader,nounits']
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        rows = [[float(x) for x in row.split(',')] for row in result.stdout.split('\n') if row]
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    stats = {}
    for index, (compute, memory, used) in enumerate(rows):
        stats[f'compute_avg/gpu{index}'] = compute / 100
        stats[f'memory_avg/gpu{index}'] = memory / 100
        stats[f'memory_used_gb/gpu{index}'] = used / 1024
    return stats


def gputil_stats() -> dict[str, float]:
    """Return load and memory of each accelerator through GPUtil, if that is installed.

    >>> import importlib.util
    >>> stats = gputil_stats() if importlib.util.find_spec('GPUtil') else {}
    >>> all(0 <= v <= 1 for k, v in stats.items() if k.endswith('/load'))
    True
    """
    import GPUtil

    stats = {}
    for index, gpu in enumerate(GPUtil.getGPUs()):
        stats[f'gpu{index}/load'] = gpu.load
        stats[f'gpu{index}/mem_used_gb'] = gpu.memoryUsed / 1024
    return stats


def malloc_stats() -> dict[str, float]:
    """Return the memory of Python objects, from the first call on.

    >>> import tracemalloc
    >>> sorted(malloc_stats())
    ['current_gb', 'peak_gb']
    >>> tracemalloc.stop()
    """
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    current, peak = tracemalloc.get_traced_memory()
    return {'current_gb': current / GIB, 'peak_gb': peak / GIB}
