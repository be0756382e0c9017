"""How much of a server its clients may take: memory of requests, and connections.

A request takes room from its header on until it is answered. A frame for which there is no room
yet is not read, so that it waits at its sender, where no step can be lost or overtake another.
"""

import threading
from typing import TYPE_CHECKING

from .frames import LIMIT

if TYPE_CHECKING:
    from .connection import Connection

TOTAL = LIMIT  # bytes of all requests together, beside those of the reserves
RESERVE = 2**20  # bytes that each connection may take however full it is
TINY = 2**12  # bytes of a frame that finds room in a reserve even if closed connections fill up
OVERHEAD = 2**10  # bytes of a request beside those of its frame, about
WAITING = 512  # requests of one connection without answer; clients of ours have 128 at most
SMALL = 2**12  # bytes of a frame before the proof, where a server asks for one
SLOW = 10.0  # seconds that a frame may take while others wait for room
RATE = 2**20  # bytes per second that it may take beside them
UNPROVEN = 64  # connections without an accepted request


class Room:
    """The memory that is left for requests. Thread-safe.

    A connection takes of its reserve first and then of what all share. Where one has closed,
    all that it still has under way counts as shared.
    """

    def __init__(self) -> None:
        self.used = 0  # of what all share
        self._lock = threading.Lock()

    def take(self, connection: 'Connection', size: int) -> bool:
        """Take room for a frame; return whether there was any."""
        cost = size + OVERHEAD
        with self._lock:
            over = _shared(connection.held + cost) - _shared(connection.held)
            if over and self.used + over > TOTAL:
                return False
            if size > TINY and self.used > TOTAL:
                return False
            if connection.meets and connection.waiting >= WAITING:
                return False
            self.used += over
            connection.held += cost
            connection.waiting += 1
            return True

    def give(self, connection: 'Connection', size: int) -> None:
        """Give back the room of a frame."""
        cost = size + OVERHEAD
        with self._lock:
            before = self._counted(connection)
            connection.held -= cost
            connection.waiting -= 1
            self.used += self._counted(connection) - before

    def leave(self, connection: 'Connection') -> None:
        """Let a connection that ends have no reserve any more."""
        with self._lock:
            before = self._counted(connection)
            connection.left = True
            self.used += self._counted(connection) - before

    def _counted(self, connection: 'Connection') -> int:
        return connection.held if connection.left else _shared(connection.held)


def _shared(held: int) -> int:
    return max(0, held - RESERVE)


def unproven(files: int) -> int:
    """Return how many connections may be unproven in a process that may open so many files."""
    return max(4, min(UNPROVEN, files // 16))


def connections(files: int) -> int:
    """Return how many there may be in all: a quarter is left for what else a process opens."""
    return max(8, files - files // 4)


def files() -> int:
    """Return how many files this process may open."""
    try:
        import resource
    except ImportError:  # no POSIX system
        return 1024
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft
