"""Streams between the replay and the agent: endless iterators that can save their place.

A stream made of others saves and loads theirs. An exception in a source surfaces in the
consumer with its own traceback, through every kind of stream.
"""

import collections
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import Stream


class Stateless(Stream):
    """Call `fn()` for every batch; there is no place to keep.

    >>> stream = Stateless(lambda: np.zeros((2, 4)))
    >>> next(stream).shape, stream.save()
    ((2, 4), None)
    """

    def __init__(self, fn: Callable[[], Any]):
        self._fn = fn

    def __next__(self) -> Any:
        return self._fn()

    def save(self) -> None:
        return None

    def load(self, state: None) -> None:
        pass


class Map(Stream):
    """Apply `fn` to every batch of a source, where the consumer runs.

    >>> next(Map(Stateless(lambda: 3), lambda x: x + 1))
    4
    """

    def __init__(self, source: Stream, fn: Callable[[Any], Any]):
        self._source = source
        self._fn = fn

    def __next__(self) -> Any:
        return self._fn(next(self._source))

    def save(self) -> Any:
        return self._source.save()

    def load(self, state: Any) -> None:
        self._source.load(state)


class Zip(Stream):
    """Take one batch of each source and give them as a tuple.

    >>> next(Zip([Stateless(lambda: 'images'), Stateless(lambda: 'texts')]))
    ('images', 'texts')
    """

    def __init__(self, sources: Sequence[Stream]):
        self._sources = list(sources)

    def __next__(self) -> tuple:
        return tuple(next(source) for source in self._sources)

    def save(self) -> list:
        return [source.save() for source in self._sources]

    def load(self, state: Sequence) -> None:
        for source, part in zip(self._sources, state, strict=True):
            source.load(part)


class Mixer(Stream):
    """Take every batch from one of several named sources, drawn in proportion to `weights`.

    The draw depends on the seed and on the number of batches alone, so that a saved place is
    one number.

    Raises ValueError if the names differ or a weight is negative or not finite.

    >>> sources = {'own': Stateless(lambda: 'own'), 'expert': Stateless(lambda: 'expert')}
    >>> mixer = Mixer(sources, {'own': 3, 'expert': 1})
    >>> batches = [next(mixer) for _ in range(1000)]
    >>> 2 < batches.count('own') / batches.count('expert') < 4
    True
    """

    def __init__(
        self, sources: Mapping[str, Stream], weights: Mapping[str, float], seed: int = 0
    ):
        if sources.keys() != weights.keys():
            raise ValueError(f'Sources {sorted(sources)} and weights {sorted(weights)} differ.')
        values = np.array([weights[name] for name in sources], np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
            raise ValueError(
                f'Weights must be finite, not negative, not all 0: {dict(weights)}.'
            )
        self._sources = dict(sources)
        self._probs = values / values.sum()
        self._seed = seed
        self._count = 0

    def __next__(self) -> Any:
        rng = np.random.default_rng([self._seed, self._count])
        name = list(self._sources)[rng.choice(len(self._probs), p=self._probs)]
        batch = next(self._sources[name])
        self._count += 1
        return batch

    def save(self) -> dict:
        return {
            'count': self._count,
            'sources': {name: source.save() for name, source in self._sources.items()},
        }

    def load(self, state: dict) -> None:
        self._count = state['count']
        for name, source in self._sources.items():
            source.load(state['sources'][name])


class Consec(Stream):
    """Cut sequences (batch, time, …) into `consec` chunks that follow one another.

    A chunk has length + prefix steps and starts `length` steps after the one before, so that
    neighbours share `prefix` steps. Each gets the int32 key `consec` (batch, length + prefix)
    that is 0, 1, … within its sequence. `strict`: sequences of any other length than
    consec * length + prefix are a ValueError, else longer ones are cut short. `contiguous`:
    chunks are copies, else views.

    After a load the same chunk of the same sequence comes next if the source can give the
    sequence again; a source without a place (its state is None) begins a new sequence.

    >>> sequence = {'step': np.arange(5)[None]}  # one sequence of 1 + 2 * 2 steps
    >>> chunks = Consec(Stateless(lambda: sequence), length=2, consec=2, prefix=1)
    >>> first, second = next(chunks), next(chunks)
    >>> first['step'].tolist(), second['step'].tolist()
    ([[0, 1, 2]], [[2, 3, 4]])
    >>> second['consec'].tolist()
    [[1, 1, 1]]
    """

    def __init__(
        self,
        source: Stream,
        length: int,
        consec: int = 1,
        prefix: int = 0,
        strict: bool = True,
        contiguous: bool = False,
    ):
        self._source = source
        self._length = length
        self._consec = consec
        self._prefix = prefix
        self._strict = strict
        self._contiguous = contiguous
        self._sequence: dict[str, np.ndarray] | None = None
        self._index = 0
        self._before: Any = None  # state of the source before it gave the current sequence

    def __next__(self) -> dict[str, np.ndarray]:
        if self._sequence is None:
            self._before = self._source.save()
            self._sequence = self._pull()
        index, sequence = self._index, self._sequence
        start, total = index * self._length, self._length + self._prefix
        chunk = {key: value[:, start : start + total] for key, value in sequence.items()}
        if self._contiguous:
            chunk = {key: np.array(value, order='C') for key, value in chunk.items()}
        batch = len(next(iter(chunk.values())))
        chunk['consec'] = np.full((batch, total), index, np.int32)
        self._index += 1
        if self._index == self._consec:
            self._sequence, self._index = None, 0
        return chunk

    def save(self) -> dict:
        source = self._source.save() if self._index == 0 else self._before
        return {'source': source, 'index': self._index}

    def load(self, state: dict) -> None:
        self._source.load(state['source'])
        self._sequence, self._index = None, 0
        if state['source'] is not None:
            self._index = state['index']

    def _pull(self) -> dict[str, np.ndarray]:
        sequence = next(self._source)
        wanted = self._consec * self._length + self._prefix
        for key, value in sequence.items():
            steps = value.shape[1]
            if steps < wanted or (self._strict and steps != wanted):
                more = '' if self._strict else ' or more'
                raise ValueError(f'{key!r} has {steps} steps instead of {wanted}{more}.')
        return sequence


class Prefetch(Stream):
    """Keep up to `amount` batches ready, made by a thread that also applies `transform`.

    The thread starts with the first batch asked for, and ends on `close`, with this object,
    or with an exception, which every later `next` raises. The saved place is that of the
    batches consumed, not of those made ahead. Batches are taken from the source at times that
    the thread decides: where the order against other work matters (sampling against
    inserting), use Map.

    >>> stream = Prefetch(Stateless(lambda: 3), transform=lambda x: x + 1, amount=2)
    >>> next(stream)
    4
    >>> stream.close()
    """

    def __init__(
        self, source: Stream, transform: Callable[[Any], Any] | None = None, amount: int = 1
    ):
        self._source = source
        self._transform = transform
        self._amount = amount
        self._belt: _Belt | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: Any = None
        self._place: Any = None

    def __next__(self) -> Any:
        belt = self._belt or self._start()
        batch, self._place = belt.take()
        return batch

    def save(self) -> Any:
        return self._source.save() if self._belt is None else self._place

    def load(self, state: Any) -> None:
        self.close()  # waits for the batch in the making: the source has one user at a time
        self._source.load(state)
        self._belt = None

    def close(self) -> None:
        """End the thread and wait for it; what it made ahead is dropped."""
        if self._thread is not None:
            self._finalizer()
            self._thread.join()

    def _start(self) -> '_Belt':
        self._place = self._source.save()
        belt = self._belt = _Belt(self._amount)
        self._finalizer = weakref.finalize(self, belt.close)
        self._thread = threading.Thread(
            # The thread knows the belt and not this object, which can so be collected.
            target=_produce,
            args=(self._source, self._transform, belt),
            name='prefetch',
            daemon=True,
        )
        self._thread.start()
        return belt


class _Belt:
    """Finished batches on their way from the thread to the consumer."""

    def __init__(self, amount: int):
        self._amount = amount
        self._ready: collections.deque = collections.deque()
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()

    def wait_for_room(self) -> bool:
        """Wait until another batch is wanted and return True, or False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ready) < self._amount)
            return not self._closed

    def put(self, batch: Any, place: Any) -> None:
        with self._changed:
            self._ready.append((batch, place))
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def take(self) -> tuple[Any, Any]:
        """Return the next batch and its place; batches made before an error come first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ready or self._error)
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            raise RuntimeError('The stream is closed.')

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()


def _produce(source: Stream, transform: Callable | None, belt: _Belt) -> None:
    """Make batches until the belt is closed or the source fails."""
    while belt.wait_for_room():
        try:
            batch = next(source)
            place = source.save()
            if transform is not None:
                batch = transform(batch)
        except BaseException as error:  # whatever it is, the consumer must not wait for ever
            belt.fail(error)
            return
        belt.put(batch, place)
        del batch  # or the thread would hold it while it waits
