"""Batches on their way to the devices, one ahead, by a fixed schedule.

The batch after the one that is trained on is sampled and sent while the devices work. Nothing
runs in a thread of its own: what a batch holds depends only on what was inserted and updated
before the update on the batch before it, and the same seed gives the same run.
"""

from collections.abc import Callable, Mapping
from typing import Any

from embodied.core.base import Stream


class Batch(dict):
    """A batch on the devices. `meanwhile()` is to be called while they work on it."""

    def __init__(self, data: Mapping[str, Any], meanwhile: Callable[[], None]):
        super().__init__(data)
        self.meanwhile = meanwhile


class DeviceFeed(Stream):
    """Stream of `put(batch)` for the batches of a source."""

    def __init__(self, source: Stream, put: Callable[[dict], Mapping[str, Any]]):
        self.source, self.put = source, put
        self.ahead: list[Mapping[str, Any]] = []

    def __next__(self) -> Batch:
        self._fetch()
        return Batch(self.ahead.pop(), self._fetch_what_is_there)

    def save(self) -> Any:
        """Place of the source. The batch ahead is sampled anew after a load."""
        return self.source.save()

    def load(self, state: Any) -> None:
        """Go on from a saved place, from the next batch on."""
        self.ahead.clear()
        self.source.load(state)

    def _fetch_what_is_there(self) -> None:
        # An update is not over before it is looked at: it waits for nobody.
        if self.source.ready():
            self._fetch()

    def _fetch(self) -> None:
        if not self.ahead:
            self.ahead.append(self.put(next(self.source)))
