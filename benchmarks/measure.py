"""What several benchmarks measure with. Prints nothing by itself."""

import collections
import json
import statistics
import time
from collections.abc import Callable

import numpy as np


def durations(fn: Callable[[], object], repeats: int) -> list[float]:
    """Durations of calls in seconds, after one that is not counted."""
    fn()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        found.append(time.perf_counter() - start)
    return found


def short(figure: float) -> float:
    """Four digits of it."""
    return float(f'{figure:.4g}')


def line(program: str, flags: dict, figures: dict, before: dict, after: dict) -> str:
    """One line of JSON, as benchmarks/compare.py reads it.

    flags: what was measured. before, after: `calibrate` before and after the figures.
    """
    content = {'program': program, 'flags': flags, 'figures': figures}
    return json.dumps({**content, 'before': before, 'after': after})


def median(fn: Callable[[], object], seconds: float) -> float:
    """Median duration in seconds of at least five calls, after one that is not counted."""
    fn()
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while len(durations) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        fn()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def pipelined(call: Callable, seconds: float, ahead: int = 16) -> float:
    """Calls per second with up to `ahead` futures under way."""
    waiting: collections.deque = collections.deque()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        waiting.append(call())
        if len(waiting) >= ahead:
            waiting.popleft().result(60)
            count += 1
    while waiting:
        waiting.popleft().result(60)
        count += 1
    return count / (time.perf_counter() - start)


def speed() -> dict[str, float]:
    """Copies of 64 MiB in GB/s, and writes into a dict in Mops/s: the speed of the machine."""
    source, count = np.ones(64 * 2**20, np.uint8), 300_000
    target, table = np.empty_like(source), {}

    def loop() -> None:
        for i in range(count):
            table[i & 1023] = i

    copy = median(lambda: np.copyto(target, source), 0.2)
    return {
        'copy_gbs': source.nbytes / copy / 1e9,
        'python_mops': count / median(loop, 0.2) / 1e6,
    }


def mean(speeds: list[dict[str, float]]) -> dict[str, float]:
    """The mean of several results of `speed`."""
    return {key: round(statistics.mean(x[key] for x in speeds), 1) for key in speeds[0]}
