"""What keeps inserting and sampling in proportion, and how threads wait for their turn."""

import threading
import time
from collections.abc import Callable
from typing import Any

NOTICE = 60.0  # seconds of waiting after which a wait says what it waits for


def wait(
    condition: threading.Condition,
    ready: Callable[[], Any],
    message: str,
    timeout: float | None = None,
    notice: float = NOTICE,
) -> bool:
    """Wait until `ready()` holds and return True, or False after `timeout` seconds.

    The caller holds `condition`, and whoever changes what `ready` depends on notifies it.
    `message` is printed every `notice` seconds.

    >>> condition, arrived = threading.Condition(), ['a step']
    >>> with condition:
    ...     wait(condition, lambda: arrived, 'nothing arrived')
    True
    >>> with condition:
    ...     wait(condition, lambda: not arrived, 'nobody took it', timeout=0.01)
    False
    """
    start = time.monotonic()
    while True:
        waited = time.monotonic() - start
        pause = notice if timeout is None else min(notice, timeout - waited)
        if condition.wait_for(ready, max(0.0, pause)):
            return True
        waited = time.monotonic() - start
        if timeout is not None and waited >= timeout:
            return False
        print(f'Waiting for {waited:.0f} s: {message}', flush=True)


class SamplesPerInsert:
    """Allow about `samples_per_insert` samples for every insert; safe between threads.

    `avail` counts the samples that are owed: it starts at -minsize, each insert from the
    minsize-th on adds `samples_per_insert`, and each sample takes 1. Inserts are wanted while
    avail < tolerance * samples_per_insert, samples while avail > -tolerance; so the first
    sample comes well after minsize inserts. samples_per_insert < 0: no limit; 0: no samples.

    Raises ValueError for a minsize below 1 or a tolerance below 0.

    >>> limiter = SamplesPerInsert(samples_per_insert=2.0, tolerance=3.0, minsize=1)
    >>> limiter.want_insert(), limiter.want_sample()
    (True, False)
    >>> limiter.insert()
    >>> limiter.want_sample()  # 1 is owed: -1 at the start and 2 for the insert
    True
    >>> for _ in range(4):
    ...     limiter.sample()
    >>> limiter.want_sample()  # -3 are owed, no more than the tolerance allows
    False
    """

    def __init__(self, samples_per_insert: float, tolerance: float, minsize: int):
        if minsize < 1 or tolerance < 0:
            raise ValueError(f'minsize {minsize} must be >= 1, tolerance {tolerance} >= 0.')
        self.samples_per_insert = samples_per_insert
        self.tolerance = tolerance
        self.minsize = minsize
        self.size = 0
        self.avail: float = -minsize
        self._changed = threading.Condition(threading.RLock())

    def insert(self) -> None:
        """Count an insert, and wake those who wait for it."""
        with self._changed:
            self.size += 1
            if self.size >= self.minsize:
                self.avail += self.samples_per_insert
            self._changed.notify_all()

    def sample(self) -> None:
        """Count a sample, and wake those who wait for it."""
        with self._changed:
            self.avail -= 1
            self._changed.notify_all()

    def want_insert(self) -> bool:
        """Whether the next operation may be an insert."""
        with self._changed:
            if self.size < self.minsize or self.samples_per_insert <= 0:
                return True
            return self.avail < self.tolerance * self.samples_per_insert

    def want_sample(self) -> bool:
        """Whether the next operation may be a sample."""
        with self._changed:
            if self.size < self.minsize or self.samples_per_insert == 0:
                return False
            return self.samples_per_insert < 0 or self.avail > -self.tolerance

    def wait_insert(self, timeout: float | None = None) -> bool:
        """Wait until an insert is wanted; return False if `timeout` seconds pass before."""
        return self._wait(self.want_insert, 'insert', timeout)

    def wait_sample(self, timeout: float | None = None) -> bool:
        """Wait until a sample is wanted; return False if `timeout` seconds pass before."""
        return self._wait(self.want_sample, 'sample', timeout)

    def save(self) -> dict:
        """Return the counts."""
        with self._changed:
            return {'size': self.size, 'avail': self.avail}

    def load(self, data: dict) -> None:
        """Take over the counts; the settings stay those of this object."""
        with self._changed:
            self.size = int(data['size'])
            self.avail = float(data['avail'])
            self._changed.notify_all()

    def _wait(self, wanted: Callable[[], bool], what: str, timeout: float | None) -> bool:
        message = (
            f'the limiter allows no {what} yet ({self.samples_per_insert} samples per insert)'
        )
        with self._changed:
            return wait(self._changed, wanted, message, timeout)
