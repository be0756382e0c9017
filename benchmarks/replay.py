"""Rates of the replay, in proportion to the machine. Prints JSON.

python benchmarks/replay.py [SECONDS per figure]

Steps have an image (64, 64, 3), scalar action, reward and flags, and latents (deter 512
float32, stoch 32 indices); sequences are 65 long, batches 16, and there are 8 workers. All
rates are those of a replay at its capacity of 4,000 items. `needed` are the rates to reach on
a machine of the speed measured beside them, `ratio` the rate divided by that.
"""

import itertools
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import embodied
from embodied.replay import selectors

LENGTH, BATCH, WORKERS, CAPACITY = 65, 16, 8, 4000
PRIO = {'exponent': 0.8, 'initial': np.inf, 'zero_on_sample': True, 'maxfrac': 0.5}
SELECTORS = {
    'uniform': lambda: selectors.Uniform(0),
    'recency': lambda: selectors.Recency(1.0, 0),
    'priority': lambda: selectors.Prioritized(**PRIO, seed=0),
    'mixture': lambda: selectors.make(
        {'uniform': 0.5, 'priority': 0.3, 'recency': 0.2}, PRIO, 1.0
    ),
}
# Where calibrate gave 20 Mops/s for python: rates to reach.
INSERTS = {'uniform': 100_000, 'priority': 4 * 12_000}
BATCHES, UPDATES = 7 * 36, 30 * 38


def main(seconds: float = 1.0) -> None:
    """Measure and print everything."""
    found = {name: rates(make, seconds) for name, make in SELECTORS.items()}
    with tempfile.TemporaryDirectory() as folder:
        disk = {'storage': 'disk', 'directory': pathlib.Path(folder)}
        found['uniform_on_disk'] = rates(SELECTORS['uniform'], seconds, **disk)
    result = {
        'against_needed': compare(found),
        'rates': found,
        'selectors_alone_us': {
            name: selector_times(make, seconds) for name, make in SELECTORS.items()
        },
        'longest_wait_for_a_batch_ms': {x: pauses(x, seconds) for x in ('ram', 'disk')},
        'bytes_per_step_200m': bytes_per_step(),
    }
    print(json.dumps(result, indent=2))


def rates(make: Callable, seconds: float, **options) -> dict[str, float]:
    """Inserts, batches and updates per second, and the speed of the machine meanwhile."""
    speeds = [speed()]
    replay = embodied.Replay(LENGTH, CAPACITY, selector=make(), **options)
    steps, workers = transitions(), range(WORKERS)
    for _ in range(3 * 1024):  # until the memory of old chunks is used again
        replay.add_batch(next(steps), workers)
    calls_per_second = rate(lambda: replay.add_batch(next(steps), workers), seconds)
    result = {'inserts': WORKERS * calls_per_second}
    single = {key: value[0] for key, value in next(steps).items()}
    result['inserts_one_by_one'] = rate(lambda: replay.add(single, 3), seconds)
    speeds.append(speed())
    result['batches'] = rate(lambda: replay.sample(BATCH), seconds)
    speeds.append(speed())
    seen = [replay.sample(BATCH) for _ in range(8)]
    rng = np.random.default_rng(0)
    updates = [{'stepid': x['stepid'], 'priority': rng.random((BATCH, LENGTH))} for x in seen]
    result['updates'] = rate(lambda: replay.update(updates[rng.integers(8)]), seconds)
    for update, data in zip(updates, seen, strict=True):
        update.update({key: data[key] for key in ('dyn/deter', 'dyn/stoch')})
    result['updates_with_latents'] = rate(
        lambda: replay.update(updates[rng.integers(8)]), seconds
    )
    speeds.append(speed())
    machine = {key: statistics.mean(x[key] for x in speeds) for key in speeds[0]}
    return {key: round(value, 1) for key, value in (result | machine).items()}


def speed() -> dict[str, float]:
    """Copies of 64 MiB in GB/s, and writes into a dict in Mops/s."""
    source, count = np.ones(64 * 2**20, np.uint8), 300_000
    target, table = np.empty_like(source), {}

    def loop() -> None:
        for i in range(count):
            table[i & 1023] = i

    return {
        'copy_gbs': rate(lambda: np.copyto(target, source), 0.1) * source.nbytes / 1e9,
        'python_mops': rate(loop, 0.1) * count / 1e6,
    }


def compare(found: dict) -> dict[str, dict[str, float]]:
    """Rates to reach on this machine, and how far they are reached."""
    uniform = found['uniform']
    size = sum(x.nbytes for x in next(transitions()).values()) / WORKERS + 20
    limit = uniform['copy_gbs'] * 1e9 / (BATCH * LENGTH * size)
    slower = found['recency']['copy_gbs'] / uniform['copy_gbs']
    scale = {name: entry['python_mops'] / 20 for name, entry in found.items()}
    needed = {
        ('uniform', 'inserts'): INSERTS['uniform'] * scale['uniform'],
        ('uniform', 'batches'): 0.7 * limit,
        ('recency', 'batches'): 0.9 * uniform['batches'] * slower,
        ('priority', 'inserts'): INSERTS['priority'] * scale['priority'],
        ('priority', 'batches'): BATCHES * scale['priority'],
        ('priority', 'updates'): UPDATES * scale['priority'],
    }
    return {
        f'{name}_{what}': {
            'needed': round(value, 1),
            'found': found[name][what],
            'ratio': round(found[name][what] / value, 2),
        }
        for (name, what), value in needed.items()
    }


def selector_times(make: Callable, seconds: float) -> dict[str, dict[str, float]]:
    """Microseconds of calls of a selector with few and with many items, called in turn."""
    few, many = (calls(make(), items) for items in (4_000, 1_000_000))
    result = {}
    for name in few:
        times = medians([few[name], many[name]], seconds / 4)
        small, large = (round(1e6 * x, 1) for x in times)
        result[name] = {'4000': small, '1000000': large, 'ratio': round(large / small, 2)}
    return result


def calls(selector, items: int) -> dict[str, Callable]:
    """Calls of a selector that is filled with items."""
    rng, oldest = np.random.default_rng(0), itertools.count()
    ids = stepids(2 * items + LENGTH)
    for key in range(items):
        selector[key] = ids[key : key + LENGTH]
    for key in range(0, items, LENGTH):
        selector.prioritize(ids[key : key + LENGTH], rng.random(LENGTH))

    def prioritize() -> None:
        key = int(rng.integers(items))
        selector.prioritize(ids[key : key + LENGTH], rng.random(LENGTH))

    def replace() -> None:
        key = next(oldest)
        del selector[key]
        start = (key + items) % (2 * items)  # ids of steps that have left come again
        selector[key + items] = ids[start : start + LENGTH]

    return {
        'draw_16': lambda: selector.draw(BATCH),
        'draw_1': selector,
        'prioritize': prioritize,
        'replace': replace,
    }


def stepids(count: int) -> np.ndarray:
    """Ids of the steps of one long stream with chunks of 1024 steps."""
    steps, ids = np.arange(count), np.zeros((count, 20), np.uint8)
    ids[:, :8] = (steps // 1024).astype('>i8').view(np.uint8).reshape(-1, 8)
    ids[:, 16:] = (steps % 1024).astype('>u4').view(np.uint8).reshape(-1, 4)
    return ids


def pauses(storage: str, seconds: float) -> dict[str, float]:
    """Longest time for a batch while nothing else runs, and while all is saved."""
    with tempfile.TemporaryDirectory() as folder:
        replay = embodied.Replay(
            LENGTH, 20_000, pathlib.Path(folder), storage=storage, save_wait=True
        )
        batches = transitions()
        for _ in range(20_000 // WORKERS):
            replay.add_batch(next(batches), range(WORKERS))
        replay.sample(BATCH)
        quiet = longest(replay, time.perf_counter() + seconds, lambda: False)
        saver = threading.Thread(target=replay.save)
        start = time.perf_counter()
        saver.start()
        busy = longest(replay, start + seconds, saver.is_alive)
        saver.join()
        result = {'quiet': quiet, 'while_saving': busy, 'save': time.perf_counter() - start}
        return {key: round(1000 * value, 1) for key, value in result.items()}


def longest(replay: embodied.Replay, end: float, going: Callable) -> float:
    """Longest time in seconds of a sample until `end`, and for as long as `going()`."""
    worst, last = 0.0, time.perf_counter()
    while last < end or going():
        replay.sample(BATCH)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    return worst


def bytes_per_step() -> dict[str, float]:
    """RAM of a step of the 200M model in bfloat16, against the 53.3 KB of the reference."""
    sizes = {'image': 64 * 64 * 3, 'dyn/deter': 2 * 8192, 'dyn/stoch': 32, 'scalars': 4 + 4 + 3}
    step = {key: np.zeros(size, np.uint8) for key, size in sizes.items()}
    replay = embodied.Replay(1, 1024)
    replay.add(step)
    found = replay.stats()['ram_gb'] * 2**30 / 1024
    return {'found': round(found), 'share_of_reference': round(found / 53_300, 3)}


def transitions(count: int = 50) -> Iterator[dict[str, np.ndarray]]:
    """Steps of all workers, over and over."""
    rng, n = np.random.default_rng(0), WORKERS
    made = [
        {
            'image': rng.integers(0, 255, (n, 64, 64, 3), dtype=np.uint8),
            'action': rng.integers(0, 5, n).astype(np.int32),
            'reward': rng.normal(size=n).astype(np.float32),
            'is_first': np.zeros(n, bool),
            'is_last': np.zeros(n, bool),
            'is_terminal': np.zeros(n, bool),
            'dyn/deter': rng.normal(size=(n, 512)).astype(np.float32),
            'dyn/stoch': rng.integers(0, 4, (n, 32)).astype(np.uint8),
        }
        for _ in range(count)
    ]
    while True:
        yield from made


def rate(fn: Callable[[], object], seconds: float, parts: int = 5) -> float:
    """Calls per second of this process's own time: the median of several parts.

    So what else runs on the machine disturbs little; calls here use one thread.
    """
    return statistics.median(_calls(fn, seconds / parts) for _ in range(parts))


def _calls(fn: Callable[[], object], seconds: float) -> float:
    fn()
    start, count = time.process_time(), 0
    while count == 0 or time.process_time() - start < seconds:
        fn()
        count += 1
    return count / (time.process_time() - start)


def medians(fns: list[Callable[[], object]], seconds: float) -> list[float]:
    """Median durations in seconds of calls that take turns."""
    durations: list[list[float]] = [[] for _ in fns]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for fn, own in zip(fns, durations, strict=True):
            start = time.perf_counter()
            fn()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in durations]


if __name__ == '__main__':
    main(*map(float, sys.argv[1:]))
