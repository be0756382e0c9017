"""The replay: steps in, batches of sequences out."""

import collections
import contextlib
import pathlib
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import estimate, journal, limiters, selectors
from .chunk import Chunk, Span
from .ring import Ring
from .storage import Storage

MODES = ('train', 'report', 'eval')
STORAGES = ('ram', 'disk')


class Replay:
    """Store the steps of several workers and sample sequences of `length` steps.

    An item is a start position of `length` consecutive steps of one worker; it exists once
    all of its steps are in. Sequences cross episodes, never workers. The oldest items leave
    when there are `capacity`, and their storage with them. Every step gets a `stepid` of 20
    bytes, by which `update` finds it.

    directory: where `save` writes chunk files and `load` finds them. storage: 'ram' keeps
    chunks in memory; 'disk' in mapped files of the directory, so that the disk bounds the
    capacity and a process that is killed loses no step. chunksize: steps per chunk. online:
    each worker's stream is also cut into sequences that do not overlap, which the next train
    samples take first, once each. selector: picks items for train samples (default
    Uniform(seed)); report and eval samples draw uniformly from generators of their own, so
    that they change nothing in training. save_wait: `save` also waits until the disk has the
    bytes. convert: applied to the arrays of each file loaded, for files that others wrote;
    applied to its own result it must change nothing.

    Thread-safe: `_lock` guards which items there are and is held for a short time; copies of
    stored values and files have locks of their own (see Storage).

    Raises UserError for sizes below 1, an unknown storage, or one that lacks a directory.

    >>> replay = Replay(length=3, capacity=100)
    >>> for i in range(5):
    ...     replay.add({'reward': np.float32(i), 'is_first': np.bool_(i == 0)}, worker=0)
    >>> len(replay)  # sequences start at the steps 0, 1 and 2
    3
    >>> batch = replay.sample(16)
    >>> batch['reward'].shape, batch['stepid'].shape
    ((16, 3), (16, 3, 20))
    >>> replay.update({'stepid': batch['stepid'], 'reward': 0 * batch['reward']})
    >>> float(replay.sample(16)['reward'].max())
    0.0
    """

    def __init__(
        self,
        length: int,
        capacity: int | None = None,
        directory: Any = None,
        chunksize: int = 1024,
        online: bool = False,
        selector: selectors.Selector | None = None,
        save_wait: bool = False,
        name: str = 'unnamed',
        seed: int = 0,
        storage: str = 'ram',
        convert: Callable[[dict], dict] | None = None,
    ):
        if min(length, chunksize, 1 if capacity is None else capacity) < 1:
            raise UserError(
                f'Replay {name!r} needs a length, capacity and chunksize of at least 1, got '
                f'{length}, {capacity} and {chunksize} (replay.size, replay.chunksize).'
            )
        if storage not in STORAGES or (storage == 'disk' and directory is None):
            raise UserError(
                f'Replay {name!r} has storage {storage!r} in directory {directory}; expected '
                f'{" or ".join(STORAGES)}, for disk with a directory (replay.storage).'
            )
        self.length = length
        self.capacity = None if capacity is None else int(capacity)
        self.name = name
        self._selector = selectors.Uniform(seed) if selector is None else selector
        self._needs_ids = selectors.needs_ids(self._selector)
        self._convert = convert
        self._rngs = {x: np.random.default_rng([seed, i]) for i, x in enumerate(MODES) if i}
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        disk = storage == 'disk'
        self._storage = Storage(name, chunksize, directory, save_wait, self._lock, disk)
        self._streams: dict[Hashable, _Stream] = {}
        self._loaded: dict[Hashable, tuple[Chunk, collections.deque[int], int]] = {}
        self._items = Ring()  # of positions; the i-th is item `first` + i
        self._first = 0
        self._online: collections.deque[int] | None = collections.deque() if online else None
        self._counts: collections.Counter[str] = collections.Counter()

    @property
    def directory(self) -> pathlib.Path | None:
        """Where the files are. One process at a time may use it: see `run.lock`."""
        return self._storage.directory

    def __len__(self) -> int:
        """The number of items."""
        return len(self._items)

    def add(self, step: Mapping[str, Any], worker: Hashable = 0) -> None:
        """Append one step to a worker's stream; keys that start with log/ are left out.

        All steps have the same keys, shapes and dtypes, or a UserError says which differs.
        """
        step = _stored(step)
        if self._storage.disk:
            self._make_room(step, (), [worker])
        with self._lock:
            self._storage.check(step)
            with self._reserved([worker]) as places:
                ((chunk, index),) = places
                arrays = chunk.arrays
                for key, value in step.items():
                    arrays[key][index] = value
            self._complete(self._streams[worker], (chunk, index))
        self._storage.collect()

    def add_batch(
        self,
        steps: Mapping[str, Any],
        workers: Sequence[Hashable],
        request: journal.Request | None = None,
    ) -> None:
        """Append one step to the stream of each of n workers, as n calls of `add` would.

        steps: arrays (n, …). One call for many workers is much faster than one for each.
        request: client and number of a request that may come again, also to the process that
        comes after a kill; its steps are inserted once. With storage 'disk' a kill leaves all
        of them or none, and needs the directory.
        """
        steps = _stored(steps)
        count = len(workers)
        if not count:
            return
        if self._storage.disk:
            self._make_room(steps, (count,), workers)
        with self._lock:
            self._storage.check(steps, (count,))
            if request and self._storage.has(request):
                return
            with self._reserved(workers) as places:
                self._storage.write(places, steps, request)
            for place, worker in zip(places, workers, strict=True):
                self._complete(self._streams[worker], place)
            self._storage.settle(request)
        self._storage.collect()

    def received(self, request: journal.Request) -> bool:
        """Whether the steps of a request are in, perhaps since an earlier process."""
        with self._lock:
            return self._storage.has(request)

    def sample(self, batch: int, mode: str = 'train') -> dict[str, np.ndarray]:
        """Return `batch` sequences as new arrays (batch, length, …); waits for the first item.

        is_first is set at the first step of each, and is_last where the step after it
        begins an episode (an abandoned one ended there).
        """
        if mode not in MODES:
            raise ValueError(f'mode {mode!r} is none of {MODES}')
        with self._lock:
            limiters.wait(self._filled, self.__len__, f'replay {self.name!r} is empty')
            spans = [self._span(key) for key in self._pick(batch, mode)]
            self._counts['samples'] += batch
        data = self._storage.read(spans, self.length)
        if 'is_first' in data:
            data['is_first'][:, 0] = True
            if 'is_last' in data:
                data['is_last'][:, :-1] |= data['is_first'][:, 1:]
        return data

    def update(self, data: Mapping[str, Any]) -> None:
        """Overwrite stored values of the steps in `stepid` (…, 20), uint8.

        data: any stored keys (…, *shape of a step), and `priority` (…), which goes to the
        selector. Steps that have left the buffer are ignored.
        """
        lead = np.shape(data['stepid'])[:-1]
        ids = np.ascontiguousarray(data['stepid']).reshape(-1, 20)
        values = {k: np.asarray(v) for k, v in data.items() if k not in ('stepid', 'priority')}
        with self._lock:
            if not self._storage.spec:  # nothing was inserted yet: all of them have left
                return
            self._check_update(values, lead)
            runs = list(self._storage.runs(ids))
            if 'priority' in data and runs:
                known = np.concatenate([np.arange(x, x + n) for *_, x, n in runs])
                priorities = np.asarray(data['priority']).reshape(len(ids))
                self._selector.prioritize(ids[known], priorities[known])
            self._counts['updates'] += sum(count for *_, count in runs)
        if values:
            flat = {k: v.reshape(len(ids), *v.shape[len(lead) :]) for k, v in values.items()}
            self._storage.overwrite(runs, flat)

    def stats(self) -> dict[str, float]:
        """Return sizes, and what was counted since the last call.

        inserts in items, samples in sequences, updates in steps; replay_ratio is the number
        of sampled steps per inserted item.
        """
        with self._lock:
            counts, self._counts = self._counts, collections.Counter()
            inserts, samples = counts['inserts'], counts['samples']
            return {
                'items': len(self._items),
                'chunks': len(self._storage),
                'streams': len(self._streams),
                'ram_gb': self._storage.nbytes / 2**30,
                'inserts': inserts,
                'samples': samples,
                'updates': counts['updates'],
                'replay_ratio': self.length * samples / inserts if inserts else 0.0,
            }

    def describe(self) -> list[str]:
        """Return lines about the size at capacity, with warnings where it will not fit.

        There are none before the first step, and without a capacity.
        """
        storage = self._storage
        if self.capacity is None or not storage.spec:
            return []
        return estimate.describe(
            self.name, storage.spec, self.capacity, storage.disk, storage.directory
        )

    def save(self) -> dict:
        """Write what is new to the directory, if there is one, and return the rest.

        That are sizes, where streams end, and the states of random generators.

        Chunks that grew are written. Those whose stored values alone changed are written too,
        up to 1 GiB per save, so that a large buffer is not written anew every time; the rest
        follows at the next saves. Files of chunks that have left are removed.
        """
        with self._lock:
            end = self._first + len(self._items)
        self._storage.save()
        with self._lock:
            streams = [[name, x.chunk.uuid, x.count] for name, x in self._streams.items()]
            streams += [[name, x[0].uuid, x[2]] for name, x in self._loaded.items()]
            # Of what came meanwhile the files may lack steps.
            items = max(0, min(end - self._first, len(self._items)))
            sizes = {'items': items, 'length': self.length, 'chunks': len(self._storage)}
            rngs = [rng.bit_generator.state for rng in self._generators()]
            return {**sizes, 'streams': streams, 'rngs': rngs}

    def load(self, data: Any = None, anew: bool = False) -> None:
        """Take in what the directory holds and is not there yet; `data` comes from `save`.

        The newest items are kept up to the capacity, where a chunk is as old as its first
        step. Workers in `data` go on where their streams end, others, and all with `anew`,
        begin new ones. Files that cannot be used are skipped with one warning that names
        them, and there is one if fewer items are there than `data` counts.
        """
        data = data or {}
        room = None if self.capacity is None else self.capacity - len(self)
        named = {uuid for _, uuid, _ in data.get('streams', ())}
        chunks = self._storage.load(self.length, room, self._convert, named)
        for chunk, skip in chunks:
            with self._lock:
                self._adopt(chunk, skip)
        before = {x.successor.uuid: x for x, _ in chunks if x.successor is not None}
        last = {x.uuid: x for x, _ in chunks}
        for worker, uuid, count in data.get('streams', ()):
            if uuid in last and not anew:
                with self._lock:
                    self._continue(worker, last[uuid], before, count)
        with self._lock:
            self._draw_on(data.get('rngs', ()))
        self._check_count(data)

    def _check_count(self, data: Mapping[str, Any]) -> None:
        """Warn if items are missing that were there when `data` was saved.

        Where none is left, the run says so, for which it is no news if the folder was emptied.
        """
        saved = data.get('items', 0) if data.get('length') == self.length else 0
        wanted = saved if self.capacity is None else min(saved, self.capacity)
        if 0 < len(self) < wanted and self.directory is not None:
            warnings.warn(
                f'Replay {self.name!r} found {len(self):,} items in {self.directory}, but its '
                f'checkpoint counts {wanted:,}: files are missing there.',
                stacklevel=3,
            )

    def _make_room(
        self, steps: Mapping[str, np.ndarray], lead: tuple, workers: Sequence[Hashable]
    ) -> None:
        """Make the files that workers need for one more step, while sampling goes on."""
        with self._lock:
            self._storage.check(steps, lead)
            needed = sum(
                self._chunks_for(worker, count)
                for worker, count in collections.Counter(workers).items()
            )
        if needed:
            self._storage.prepare(needed)

    # What follows is called under _lock.

    def _stream(self, worker: Hashable) -> '_Stream':
        """Return a worker's stream, whose chunk has room."""
        stream = self._streams.get(worker)
        if stream is None:
            chunk, begins, count = self._loaded.get(worker, (None, (), 0))
            stream = self._streams[worker] = _Stream(self._storage.allocate(chunk))
            self._loaded.pop(worker, None)  # not before: there may be no room
            stream.begins.extend(begins)
            stream.count = count
        if stream.chunk.length == stream.chunk.size:
            stream.chunk = self._storage.allocate(stream.chunk)
        return stream

    @contextlib.contextmanager
    def _reserved(self, workers: Sequence[Hashable]) -> Iterator[list[tuple[Chunk, int]]]:
        """Yield a place for one more step of each. They are given back after an error, as that
        of a full disk, so that no step is half written.

        Chunks in memory that begin together lie together.
        """
        if not self._storage.disk and all(self._chunks_for(worker, 1) for worker in workers):
            self._storage.share(len({*workers}))
        places: list[tuple[Chunk, int]] = []
        try:
            for worker in workers:
                chunk = self._stream(worker).chunk
                places.append((chunk, chunk.reserve()))
            yield places
        except BaseException:
            for chunk, _ in reversed(places):
                chunk.give_back()
            raise

    def _chunks_for(self, worker: Hashable, count: int) -> int:
        """How many more chunks the next `count` steps of a worker need."""
        stream = self._streams.get(worker)
        room = stream.chunk.size - stream.chunk.length if stream else 0
        return self._storage.chunks_for(count - room)

    def _complete(self, stream: '_Stream', place: tuple[Chunk, int]) -> None:
        """Count the step at a place, and make the item that it completes, if it does."""
        chunk, index = place
        chunk.filled()
        stream.begins.append(chunk.position(index))
        stream.count += 1
        if len(stream.begins) < self.length:
            return
        self._insert(stream.begins.popleft())
        if self._online is not None and stream.count % self.length == 0:
            self._online.append(self._first + len(self._items) - 1)
        self._counts['inserts'] += 1

    def _adopt(self, chunk: Chunk, skip: int) -> None:
        """Take in a loaded chunk and make items of its steps from `skip` on."""
        self._storage.register(chunk)
        begins = range(skip, chunk.available(self.length))
        chunk.refs = len(begins)
        for index in begins:
            self._insert(chunk.position(index))

    def _generators(self) -> list[np.random.Generator]:
        return [*self._rngs.values(), *selectors.generators(self._selector)]

    def _draw_on(self, states: Sequence[dict]) -> None:
        """Let the generators go on, unless other ones were saved (another replay.fracs)."""
        own = self._generators()
        if len(own) == len(states):
            for rng, state in zip(own, states, strict=True):
                if state['bit_generator'] == rng.bit_generator.state['bit_generator']:
                    rng.bit_generator.state = state

    def _continue(
        self, worker: Hashable, chunk: Chunk, before: Mapping[bytes, Chunk], count: int
    ) -> None:
        """Keep the end of a loaded stream for its worker; its last steps may begin items."""
        while chunk.successor is not None:  # what came after the save was saved as well
            chunk = chunk.successor
        begins: collections.deque[int] = collections.deque()
        part: Chunk | None = chunk
        while part is not None and len(begins) < self.length - 1:
            first = max(0, part.length + len(begins) - self.length + 1)
            part.refs += part.length - first
            begins.extendleft(part.position(i) for i in reversed(range(first, part.length)))
            part = before.get(part.uuid)
        chunk.open = True
        self._loaded[worker] = chunk, begins, count

    def _insert(self, position: int) -> None:
        """Make an item of a position, after the oldest has made room."""
        if len(self._items) == self.capacity:
            self._evict()
        key = self._first + len(self._items)
        self._items.append(position)
        ids = self._storage.stepids(position, self.length) if self._needs_ids else ()
        self._selector[key] = ids
        if key == self._first:
            self._filled.notify_all()

    def _evict(self) -> None:
        position, key = self._items.popleft(), self._first
        self._first += 1
        del self._selector[key]
        if self._online and self._online[0] == key:
            self._online.popleft()
        self._storage.unref(position)

    def _pick(self, batch: int, mode: str) -> list[int]:
        """Return the keys of `batch` items."""
        size = len(self._items)
        if mode != 'train':
            return (self._first + self._rngs[mode].integers(size, size=batch)).tolist()
        online = min(batch, len(self._online or ()))
        keys = [self._online.popleft() for _ in range(online)] if self._online else []
        return keys + selectors.draw(self._selector, batch - online)

    def _span(self, key: int) -> Span:
        return self._storage.span(self._items[key - self._first], self.length)

    def _check_update(self, values: dict[str, np.ndarray], lead: tuple) -> None:
        for key, value in values.items():
            if key not in self._storage.spec:
                raise ValueError(f'Replay {self.name!r} stores no {key!r} to update.')
            shape, dtype = self._storage.spec[key]
            if value.shape != (*lead, *shape) or value.dtype != dtype:
                raise ValueError(
                    f'Update of {key!r} has {value.dtype} {value.shape} instead of {dtype} '
                    f'{(*lead, *shape)}.'
                )


class _Stream:
    """One worker: its open chunk, and the positions that may still begin an item."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.begins: collections.deque[int] = collections.deque()
        self.count = 0  # of steps


def _stored(step: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what is stored of a step, or of a batch of them."""
    return {
        key: np.asarray(value)
        for key, value in step.items()
        if key != 'stepid' and not key.startswith('log/')
    }
