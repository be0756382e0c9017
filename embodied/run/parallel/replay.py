"""The replay server: both replays, their streams, and the limiter between insert and sample."""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import logging
from ...checkpoint import checkpoint
from ...core import clocks, output, rpc, signals
from ...core.errors import UserError
from ...core.waiting import Wait
from ...replay.journal import Request
from ...replay.limiters import SamplesPerInsert
from .. import lock, start
from . import common

WAIT = 0.1  # seconds of waiting for the limiter between two looks at whether the run ends
ROUNDING = 1e-6  # of the sum of many ratios
DRAIN = 5.0  # seconds at the end for what has arrived


def parallel_replay(
    make_replay_train: Callable | bytes,
    make_replay_eval: Callable | bytes,
    make_stream: Callable | bytes,
    args: Any,
) -> None:
    """Serve run.replay_addr until asked to end.

    | endpoint | argument | does |
    |---|---|---|
    | add_batch | arrays (n, …): envid, is_eval, the transition | inserts; eval at once |
    | sample_batch_train | | a batch, once the limiter allows its sequences |
    | sample_batch_report, sample_batch_eval | | a batch |
    | update | dict with stepid | Replay.update |
    | drain | | lets all inserts through for some seconds |

    Both replays and the limiter are saved under logdir/ckpt/replay every run.save_every
    seconds, if there was traffic, and at the end; they are loaded at the start. Raises
    UserError where a run of any script uses the folder of one of the replays.
    """
    common.check_address(args, 'replay_addr', 'logger_addr')
    with contextlib.ExitStack() as stack:
        stack.enter_context(output.guarded())
        stop = stack.enter_context(signals.Stop())
        stack.enter_context(lock.held(common.folder(args, 'replay')))
        service = Service(make_replay_train, make_replay_eval, make_stream, args)
        stack.enter_context(lock.replays(service.train, service.eval))
        server = rpc.Server(args.replay_addr, 'replay', args.bind)
        cp = service.resume()
        server.bind('drain', service.drain)
        server.defer('add_batch', service.add_batch, once=True)
        server.bind('update', service.update, once=True)
        for mode in ('train', 'report', 'eval'):
            server.bind(f'sample_batch_{mode}', getattr(service, f'sample_{mode}'))
        # Connected anew by itself: the logger may come later, or be started anew.
        client = rpc.Client(args.logger_addr, 'replay', server='logger')
        stats = Statistics(service, server, client, args)
        save_due = clocks.Every(args.save_every)

        def work():
            server.check()
            stats()
            if save_due() and service.traffic:
                service.traffic = False
                common.save(cp)

        with common.rescued(cp), server, contextlib.closing(client):
            stop.begin()
            common.serve(stop, work)
            service.close()
            limit = time.monotonic() + DRAIN
            while server.stats()['inflight'] and time.monotonic() < limit:
                time.sleep(common.PAUSE)
        common.save(cp, end=True)


class Service:
    """What the endpoints do."""

    def __init__(self, make_train: Any, make_eval: Any, make_stream: Any, args: Any):
        start.check(args)
        self.train = common.factory(make_train)()
        self.eval = common.factory(make_eval)()
        start.check_replay(self.train, args)
        stream = common.factory(make_stream)
        self.minimum = start.minimum(args)
        tolerance = 4 * args.batch_size
        self.limiter = SamplesPerInsert(args.train_ratio / args.batch_length, tolerance, 1)
        # What is owed when training starts: the last sequence of a batch becomes due with all
        # the steps of an update, as in `Ratio`, and not a rounding error later.
        self._at_start = -tolerance - 1 + ROUNDING
        self._hold(0)
        self.traffic = False  # since the last save
        self.waits = {'insert': Waits(), 'sample': Waits()}
        self._args = args
        self._closing = threading.Event()
        self._drained = 0.0  # until then the limiter lets all inserts through
        self._streams = {
            'train': iter(stream(self.train, 'train')),
            'report': iter(stream(self.train, 'report')),
            'eval': iter(stream(self.eval, 'eval')),
        }
        self._insert = start.Inserter(self.train)
        self._inserts: queue.SimpleQueue = queue.SimpleQueue()
        thread = threading.Thread(target=self._insert_in_turn, name='inserts', daemon=True)
        thread.start()

    def resume(self) -> checkpoint.Checkpoint:
        """Load what an earlier server saved; return the checkpoint that goes on from there."""
        parts = {
            'replay_train': Anew(self.train),
            'replay_eval': Anew(self.eval),
            'limiter': self.limiter,
        }
        cp = common.resumed(self._args, 'replay', parts)
        if not cp.exists():
            for replay in (self.train, self.eval):
                replay.load()  # files that were put into its folder
        items, known = len(self.train), self.limiter.save()
        if items < self.minimum or known['avail'] < self._at_start:
            if known['size'] and items < self.minimum:
                print(
                    f'Training waits for {self.minimum:,} replay items (now {items:,})',
                    flush=True,
                )
            self._hold(known['size'])
        return cp

    def add_batch(self, reply: Callable, data: dict) -> None:
        """Insert n transitions: those of evaluation now, the others when the limiter allows.

        Replies once all are in. What was under way when a server was killed comes again; each
        replay knows which requests it has the transitions of.
        """
        envids, is_eval = _arrays('add_batch', data, envid='iu', is_eval='b')
        data = {k: v for k, v in data.items() if k not in ('envid', 'is_eval')}
        sizes = {k: np.shape(v)[:1] for k, v in data.items()} | {'is_eval': is_eval.shape}
        wrong = [k for k, size in sizes.items() if size != envids.shape]
        if wrong or envids.ndim != 1:
            raise UserError(f'add_batch with envid {envids.shape} has other sizes of {wrong}.')
        self.traffic = True
        if is_eval.any():
            self.eval.add_batch(*_rows(data, envids, is_eval), reply.ident)
        if is_eval.all():
            reply({})
        else:
            self._inserts.put((reply, *_rows(data, envids, ~is_eval)))

    def sample_train(self) -> dict:
        """A batch to train on, once the limiter allows its sequences."""
        for _ in range(self._args.batch_size):
            with self.waits['sample'], Wait('the environments, for steps to train on'):
                self._await(self._wait_sample)
            self.limiter.sample()
        self.traffic = True
        return next(self._streams['train'])

    def sample_report(self) -> dict:
        """A batch of the training replay for a report."""
        self._await_items(self.train)
        return next(self._streams['report'])

    def sample_eval(self) -> dict:
        """A batch of the evaluation replay."""
        self._await_items(self.eval)
        return next(self._streams['eval'])

    def update(self, data: dict) -> dict:
        """Hand over what a learner writes back."""
        _arrays('update', data, stepid='u')
        self.train.update(data)
        self.traffic = True
        return {}

    def drain(self) -> dict:
        """Let all inserts through for some seconds: a run ends, and nobody learns from it."""
        self._drained = time.monotonic() + DRAIN
        return {}

    def close(self) -> None:
        """End all waiting: what waits to be inserted is, what waits for a sample fails."""
        self._drained = math.inf
        self._closing.set()
        self._inserts.put(None)

    def _insert_in_turn(self) -> None:
        """Insert what the limiter allows, in the order of arrival. Runs in its own thread."""
        while (job := self._inserts.get()) is not None:
            reply, transitions, workers = job
            try:
                self._insert_train(transitions, workers, reply.ident)
            except Exception as error:
                reply.error(error)
            else:
                reply({})

    def _insert_train(self, transitions: dict, workers: list, request: Request | None) -> None:
        if request and self.train.received(request):
            return
        with self.waits['insert'], Wait('the learner, as run.train_ratio wants'):
            while not (time.monotonic() < self._drained or self.limiter.wait_insert(WAIT)):
                pass
        started = self.limiter.size > 0 and len(self.train) >= self.minimum
        self._insert(transitions, workers, request)
        count, ahead = len(workers), len(self.train) - self.minimum
        if not started:
            # As in `train`: the step that completes the minimum starts the count, later ones
            # of the same batch are counted.
            later = min(count - 1, max(0, ahead))
            self._hold(self.limiter.size + count - later)
            count = later
        for _ in range(count):
            self.limiter.insert()

    def _hold(self, inserts: int) -> None:
        """Let nothing be owed by the inserts so far: training starts now, or later."""
        self.limiter.load({'size': inserts, 'avail': self._at_start})

    def _wait_sample(self, timeout: float) -> bool:
        if len(self.train) < self.minimum:
            self._closing.wait(timeout)
            return False
        return self.limiter.wait_sample(timeout)

    def _await_items(self, replay: Any) -> None:
        self._await(lambda timeout: len(replay) > 0 or (self._closing.wait(timeout) and False))

    def _await(self, wait: Callable[[float], Any]) -> None:
        while not wait(WAIT):
            if self._closing.is_set():
                raise rpc.Unanswered


def _rows(data: dict, envids: np.ndarray, chosen: np.ndarray) -> tuple[dict, list]:
    """Return the chosen transitions and their envs."""
    part = data if chosen.all() else {k: v[chosen] for k, v in data.items()}
    return part, envids[chosen].tolist()


def _arrays(method: str, data: dict, **kinds: str) -> list[np.ndarray]:
    """Return entries of a message whose dtypes are of these kinds. Raises UserError."""
    found = []
    for name, kind in kinds.items():
        value = np.asarray(data.get(name))
        if name not in data or value.dtype.kind not in kind:
            raise UserError(
                f'{method} needs an array {name!r} of kind {kind}, not {value.dtype}.'
            )
        found.append(value)
    return found


class Anew:
    """A replay in a checkpoint whose workers begin new streams after a load.

    What they did between the save and the end of the server is not there, and no sequence
    may cross that gap.
    """

    def __init__(self, replay: Any):
        self._replay = replay

    def save(self) -> dict:
        return self._replay.save()

    def load(self, data: dict) -> None:
        self._replay.load(data, anew=True)
        if (items := data.get('items', 0)) and not len(self._replay):
            print(f'Replay data are missing: 0 of {items:,} items', flush=True)


class Waits:
    """Time spent waiting, from several threads, between two results; those that go on count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._count, self._duration = 0, 0.0
        self._running: dict[int, float] = {}  # thread -> from when on its wait is to be counted

    def __enter__(self) -> None:
        with self._lock:
            self._running[threading.get_ident()] = time.monotonic()

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._count += 1
            self._duration += time.monotonic() - self._running.pop(threading.get_ident())

    def result(self) -> dict[str, float]:
        """Return dur (mean seconds), count, and frac (share of the time), and start anew."""
        now = time.monotonic()
        with self._lock:
            duration = self._duration + sum(now - x for x in self._running.values())
            self._running = dict.fromkeys(self._running, now)
            count, since = self._count, self._since
            self._count, self._duration, self._since = 0, 0.0, now
        return {
            'dur': duration / max(1, count),
            'count': count,
            'frac': duration / max(now - since, 1e-9),
        }


class Statistics:
    """Sends statistics to the logger every run.log_every seconds.

    While the logger is away, at most one report waits for it.
    """

    def __init__(self, service: Service, server: rpc.Server, client: rpc.Client, args: Any):
        self._service, self._server, self._client = service, server, client
        self._due = clocks.Every(args.log_every)
        self._usage = logging.Usage(**args.usage)
        self._sent: Any = None

    def __call__(self) -> None:
        """Send, if it is time to."""
        if not self._due() or (self._sent and not self._sent.done()):
            return
        service, metrics = self._service, {}
        for what, waits in service.waits.items():
            found = waits.result()
            metrics.update({f'limiter/{what}_wait_{k}': v for k, v in found.items()})
        named = {
            'replay': service.train.stats(),
            'replay_eval': service.eval.stats(),
            'usage/replay': self._usage.stats(),
            'client/replay_logger': self._client.stats(),
            'server/replay': self._server.stats(),
        }
        for prefix, found in named.items():
            metrics.update({f'{prefix}/{k}': v for k, v in found.items()})
        metrics['limiter/avail'] = self._service.limiter.save()['avail']
        self._sent = self._client.call('add', {'metrics': metrics})
