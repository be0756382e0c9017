"""Values of steps, laid out so that those of an item are one slice.

Items of one stream overlap in all steps but one. They share a block of slots, in which every
step follows the one before, so that an item is the slot where it begins. A full block is
followed by another that begins with copies of the steps they share. Items that overlap in
other ways get copies too; whoever sets the value of a step sets it in all of its copies.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

BLOCK_ITEMS = 16  # length of a block in items that do not overlap

Range = tuple[int, int]  # slots: start, stop


class Windows:
    """Items of `length` steps with one number per step; new steps get `initial`.

    A step that belongs to no item is not known any more. Costs per step 12 bytes and a
    sixteenth.
    """

    def __init__(self, length: int, initial: float):
        self.length = length
        self._initial = initial
        self._size = BLOCK_ITEMS * length
        self._values = np.zeros(self._size)  # per slot
        self._items = np.full(self._size, -1, np.int32)  # place of the item that begins there
        self._views = self._view()
        self._blocks: dict[int, _Block] = {}
        self._free = [0]
        self._open: dict[bytes, _Block] = {}  # by the steps that the next item begins with
        self._chunks: dict[bytes, list[_Segment]] = {}

    def insert(self, ids: bytes, place: int) -> int:
        """Take in an item, given as the ids of its steps, and return the slot of its begin."""
        shared = ids[:-20]
        block = self._open.pop(shared, None)
        if (
            block is None
            or block.stop == block.base + self._size
            or not self._ends_alive(block)
        ):
            block = self._new_block()
            for step in range(self.length):
                self._append(block, ids[20 * step : 20 * step + 20])
        else:
            self._append(block, ids[-20:])
        block.items += 1
        block.ending = ids[20:]
        self._open[block.ending] = block
        start = block.stop - self.length
        self._items[start] = place
        return start

    def remove(self, start: int) -> None:
        """Forget the item that begins at a slot."""
        self._items[start] = -1
        block = self._blocks[start // self._size]
        block.items -= 1
        if not block.items:
            self._drop(block)

    def move(self, start: int, place: int) -> None:
        """Change the place of the item that begins at a slot."""
        self._items[start] = place

    def assign(self, ids: np.ndarray, values: np.ndarray) -> list[Range]:
        """Set the values of steps (n, 20); return the slots that were set."""
        ranges: list[Range] = []
        for chunk, index, first, count in runs(ids):
            for segment in self._chunks.get(chunk, ()):
                low = max(index, segment.index)
                high = min(index + count, segment.index + segment.count)
                if low < high:
                    start, stop = segment.slot(low), segment.slot(high)
                    self._values[start:stop] = values[
                        first + low - index : first + high - index
                    ]
                    ranges.append((start, stop))
        return ranges

    def clear(self, start: int, value: float) -> list[Range]:
        """Set all steps of the item at a slot to one value; return the slots that were set."""
        ranges: list[Range] = []
        for own in self._blocks[start // self._size].segments:
            low = max(own.index, own.index + start - own.start)
            high = min(own.index + own.count, low + start + self.length - own.slot(low))
            for segment in self._chunks[own.chunk] if low < high else ():
                first, last = segment.clip(low, high)
                if first < last:
                    self._values[first:last] = value
                    ranges.append((first, last))
        return ranges

    def touched(self, ranges: list[Range]) -> np.ndarray:
        """Return where the items begin that have a step in one of the ranges of slots."""
        starts = [
            np.arange(max(start // self._size * self._size, start - self.length + 1), stop)
            for start, stop in ranges
        ]
        slots = np.concatenate(starts) if starts else np.zeros(0, np.int64)
        return slots[self._items[slots] >= 0]

    def places(self, starts: np.ndarray) -> np.ndarray:
        """Return the places of the items that begin at slots."""
        return self._items[starts]

    def __getitem__(self, starts: Any) -> np.ndarray:
        """Return the values of the items that begin at slots: (…, length)."""
        return self._views[starts]

    def _ends_alive(self, block: '_Block') -> bool:
        """Whether the newest item of a block is still there, and so the steps it ends with."""
        return bool(self._items[block.stop - self.length] >= 0)

    def _append(self, block: '_Block', stepid: bytes) -> None:
        chunk, index = stepid[:16], int.from_bytes(stepid[16:], 'big')
        segments = self._chunks.get(chunk)
        if segments is None:
            segments = self._chunks[chunk] = []
        self._values[block.stop] = self._known(segments, index)
        last = block.segments[-1] if block.segments else None
        if last and last.chunk == chunk and last.index + last.count == index:
            last.count += 1
        else:
            segment = _Segment(chunk, index, block.stop)
            segments.append(segment)
            block.segments.append(segment)
        block.stop += 1

    def _known(self, segments: list['_Segment'], index: int) -> float:
        """Return the value that a step has in an item, or else the initial one."""
        for segment in segments:
            if segment.index <= index < segment.index + segment.count:
                slot = segment.slot(index)
                if len(self.touched([(slot, slot + 1)])):
                    return self._values[slot]
        return self._initial

    def _new_block(self) -> '_Block':
        if not self._free:
            count = len(self._values) // self._size
            self._free = list(range(count, 2 * count))
            self._values = np.resize(self._values, 2 * count * self._size)
            self._items = np.append(self._items, np.full(count * self._size, -1, np.int32))
            self._views = self._view()
        number = self._free.pop()
        block = self._blocks[number] = _Block(number, number * self._size)
        return block

    def _drop(self, block: '_Block') -> None:
        for segment in block.segments:
            segments = self._chunks[segment.chunk]
            segments.remove(segment)
            if not segments:
                del self._chunks[segment.chunk]
        if self._open.get(block.ending) is block:
            del self._open[block.ending]
        del self._blocks[block.number]
        self._free.append(block.number)

    def _view(self) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(self._values, self.length)


class _Block:
    """Slots from `base` on, filled up to `stop`; `ending`: all but the first step of the
    newest item."""

    def __init__(self, number: int, base: int):
        self.number = number
        self.base = base
        self.stop = base
        self.items = 0
        self.ending = b''
        self.segments: list[_Segment] = []


class _Segment:
    """Steps of one chunk, from `index` on, in slots from `start` on."""

    def __init__(self, chunk: bytes, index: int, start: int):
        self.chunk = chunk
        self.index = index
        self.start = start
        self.count = 1

    def slot(self, index: int) -> int:
        """Return the slot of a step."""
        return self.start + index - self.index

    def clip(self, low: int, high: int) -> Range:
        """Return the slots of those steps from `low` to `high` that are here."""
        low, high = max(low, self.index), min(high, self.index + self.count)
        return self.slot(low), self.slot(high)


def runs(ids: np.ndarray) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield runs of consecutive steps in stepids (n, 20): chunk, index, first in ids, count."""
    index = ids[:, 16:].copy().view('>u4')[:, 0].astype(np.int64)
    words = np.ascontiguousarray(ids[:, :16]).view(np.int64)
    breaks = (words[1:] != words[:-1]).any(1) | (index[1:] != index[:-1] + 1)
    edges = [0, *(np.nonzero(breaks)[0] + 1).tolist(), len(ids)]
    for first, end in itertools.pairwise(edges if len(ids) else []):
        yield ids[first, :16].tobytes(), int(index[first]), first, end - first


def join(stepids: Any) -> bytes:
    """Return stepids, an array (n, 20) or n byte strings, as one byte string."""
    if isinstance(stepids, np.ndarray):
        return stepids.tobytes()
    return b''.join(bytes(x) for x in stepids)


def weigh(values: np.ndarray, maxfrac: float) -> np.ndarray:
    """Return maxfrac * max + (1 - maxfrac) * mean of values (n, length); inf if one is."""
    greatest = values.max(-1)
    with np.errstate(invalid='ignore'):  # 0 * inf, where maxfrac is 0 or 1
        weights = maxfrac * greatest + (1 - maxfrac) * values.mean(-1)
    return np.where(np.isinf(greatest), np.inf, weights)
