"""An output in a thread of its own, so that neither its waits nor its errors reach the run.

What is to be written waits in a queue that is bounded in writes and in bytes. Where an output
does not keep up, the newest metrics are left out for it: what was accepted is written in
order, and a run never waits for a disk or a network.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .logger import Output, Summary
from .notices import Notices

WRITES = 1000  # that wait for an output
BYTES = 256 * 1024**2  # of arrays in them
GRACE = 120.0  # seconds that `close` waits for an output that finishes nothing


class Background:
    r"""Hand summaries to an output in the order of the calls, and return at once.

    Its thread starts with the first call and does not keep the process from ending. Errors are
    printed with the output's name, once a minute at most; what follows is still tried.

    >>> output = Background(embodied.logging.JSONL('logdir'))
    >>> output.write([(10, 'loss', np.array(0.5))])
    >>> output.close()  # waits until it is written
    >>> import pathlib
    >>> pathlib.Path('logdir/metrics.jsonl').read_text()
    '{"step": 10, "loss": 0.5}\n'
    """

    def __init__(
        self, output: Output, writes: int = WRITES, size: int = BYTES, grace: float = GRACE
    ):
        self.name = output.name
        self._output = output
        self._limits = writes, size
        self._grace = grace
        self._notices = Notices(output.name)
        self._jobs: deque[tuple[int, Callable[[], Any]]] = deque()  # the first one is running
        self._size = 0  # bytes of all jobs
        self._done = 0  # jobs since the start
        self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, summaries: list[Summary]) -> None:
        """Have it written, unless too much waits already."""
        size = sum(getattr(value, 'nbytes', 0) for _, _, value in summaries)
        writes, limit = self._limits
        with self._changed:
            waiting = len(self._jobs)
            full = waiting >= writes or (waiting > 0 and self._size + size > limit)
            if not full:
                self._add(size, lambda: self._output.write(summaries))
        if full:
            self._notices.say('does not keep up; the newest metrics are left out')

    def rewind(self, step: int) -> None:
        """Have the output go on from a step, if it is one that can."""
        if hasattr(self._output, 'rewind'):
            with self._changed:
                self._add(0, lambda: self._output.rewind(step))

    def flush(self) -> bool:
        """Wait until all is written, or until nothing ends for `grace` seconds: False."""
        with self._changed:
            while self._jobs:
                done = self._done
                self._changed.wait_for(lambda: self._done > done, self._grace)  # noqa: B023
                if self._done == done:
                    return False
        return True

    def close(self) -> None:
        """Wait for everything, then close the output; give up on one that hangs."""
        with self._changed:
            self._add(0, self._end)
        if not self.flush():
            left = len(self._jobs) - 1
            self._notices.say(f'did not end within {self._grace:.0f} s; {left} writes are lost')

    def _add(self, size: int, job: Callable[[], Any]) -> None:
        """Queue a job; the lock is held."""
        self._jobs.append((size, job))
        self._size += size
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()

    def _end(self) -> None:
        self._ended = True
        self._output.close()

    def _work(self) -> None:
        while not self._ended:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs)
                job = self._jobs[0][1]
            try:
                job()
            except Exception as error:
                self._notices.error(error)
            del job  # and with it the arrays, before the next wait
            with self._changed:
                self._size -= self._jobs.popleft()[0]
                self._done += 1
                self._changed.notify_all()
