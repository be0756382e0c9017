"""Batches on their way to the devices, one ahead, by a fixed schedule.

Asking for a batch samples the one after it, so that its transfer overlaps with the update
on the first. Nothing runs in a thread of its own: what a batch holds depends only on what
was inserted before it was asked for, and the same seed gives the same run.
"""

from collections.abc import Callable
from typing import Any

from embodied.core.base import Stream


class DeviceFeed(Stream):
    """Stream of `put(batch)` for the batches of a source."""

    def __init__(self, source: Stream, put: Callable[[dict], Any]):
        self.source, self.put = source, put
        self.ahead: list[Any] = []

    def __next__(self) -> Any:
        if not self.ahead:
            self.ahead.append(self.put(next(self.source)))
        self.ahead.append(self.put(next(self.source)))
        return self.ahead.pop(0)

    def save(self) -> Any:
        """Place of the source. The batch ahead is sampled anew after a load."""
        return self.source.save()

    def load(self, state: Any) -> None:
        """Go on from a saved place, from the next batch on."""
        self.ahead.clear()
        self.source.load(state)
