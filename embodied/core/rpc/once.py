"""Which requests were executed, so that one that is sent again is not executed again."""

import bisect
import collections
import threading
from typing import Any

from . import packing
from .frames import RequestId

REPLIES = 128  # kept per client and method, to be sent again; a repetition of others gets {}
BYTES = 2**20  # of them together; the last one is kept whatever its size
CLIENTS = 4096  # pairs of client and method that are remembered
RANGES = 256  # of numbers per pair; if there are more, the oldest gaps count as executed
WAITING = 16  # connections that get the reply of a request that is still running

NEW, RUNNING, OVER = 'new', 'running', 'over'
ACKNOWLEDGED = b''.join(packing.pack({}))


class Numbers:
    """A set of integers as few ranges. Fast at the upper end, where all happens."""

    def __init__(self, ranges: Any = ()):
        self.ranges = [[int(low), int(high)] for low, high in ranges]  # ends included, sorted

    def __contains__(self, number: int) -> bool:
        place = bisect.bisect_right(self.ranges, [number, float('inf')])
        return place > 0 and number <= self.ranges[place - 1][1]

    def add(self, number: int) -> None:
        if number in self:
            return
        place = bisect.bisect_right(self.ranges, [number, number])
        self.ranges.insert(place, [number, number])
        self._merge(place)
        self._merge(place - 1)
        if len(self.ranges) > RANGES:
            self.ranges[:2] = [[self.ranges[0][0], self.ranges[1][1]]]

    def _merge(self, place: int) -> None:
        """Join a range with the next one if they touch."""
        if 0 <= place < len(self.ranges) - 1:
            low, high = self.ranges[place : place + 2]
            if low[1] + 1 >= high[0]:
                self.ranges[place : place + 2] = [[low[0], high[1]]]


class _Entry:
    """The requests of one client to one method."""

    def __init__(self) -> None:
        self.executed = Numbers()
        self.replies: collections.OrderedDict[int, tuple] = collections.OrderedDict()
        self.running: dict[int, list] = {}  # who waits for the reply
        self._bytes = 0

    def keep(self, number: int, status: int, content: bytes) -> None:
        """Keep a reply, and drop the oldest ones if there are too many."""
        self.replies[number] = status, content
        self._bytes += len(content)
        while len(self.replies) > 1 and (len(self.replies) > REPLIES or self._bytes > BYTES):
            self._bytes -= len(self.replies.popitem(last=False)[1][1])


class Executed:
    """The requests that were executed, for methods bound with `once`. Thread-safe.

    The server that comes after a kill knows none of them. Where a second execution would do
    harm, the handler keeps the numbers beside what it writes.
    """

    def __init__(self) -> None:
        self._entries: collections.OrderedDict[tuple, _Entry] = collections.OrderedDict()
        self._lock = threading.Lock()

    def begin(self, ident: RequestId, method: str, waiter: Any) -> tuple[str, Any]:
        """Return what is to be done with a request: (NEW, None): execute it and call `end`;
        (RUNNING, None): nothing, `end` will return the waiter too; (OVER, (status, bytes)):
        send this reply. `waiter` has `connection` and is returned by `end`.
        """
        with self._lock:
            entry = self._entry(ident.client, method)
            if ident.number in entry.running:
                waiters = entry.running[ident.number]
                waiters[:] = [x for x in waiters if not x.connection.closed][1 - WAITING :]
                waiters.append(waiter)
                return RUNNING, None
            if ident.number in entry.executed:
                return OVER, entry.replies.get(ident.number, (0, ACKNOWLEDGED))
            entry.running[ident.number] = [waiter]
            return NEW, None

    def end(self, ident: RequestId, method: str, status: int, parts: packing.Parts) -> list:
        """Note that a request was executed; return all that wait for its reply."""
        content = b''.join(parts)
        with self._lock:
            entry = self._entry(ident.client, method)
            waiters = entry.running.pop(ident.number, [])
            entry.executed.add(ident.number)
            entry.keep(ident.number, status, content)
            return waiters

    def _entry(self, client: bytes, method: str) -> _Entry:
        key = client, method
        if key not in self._entries:
            self._entries[key] = _Entry()
        entry = self._entries[key]
        self._entries.move_to_end(key)
        if len(self._entries) > CLIENTS:
            idle = next((k for k, v in self._entries.items() if not v.running), None)
            if idle is not None and idle != key:
                del self._entries[idle]
        return entry
