"""The learning half of the agent's process: batches of the replay server, updates, reports."""

import collections
from collections.abc import Callable
from typing import Any

from elements import timer

from ...core import rpc
from ...core.base import Stream
from ...core.errors import UserError
from ...core.waiting import Wait
from ...logging import Aggregate, Rate
from ..learner import check_finite
from .common import PAUSE

AHEAD = 2  # batches that are asked for before they are needed


class Remote(Stream):
    """Batches of one endpoint of the replay server, some of them asked for ahead.

    tick(): called while nothing arrives; it raises Over to end the wait.
    """

    def __init__(self, client: rpc.Client, method: str, tick: Callable[[], Any]):
        self._client, self._method, self._tick = client, method, tick
        self._futures: collections.deque[Any] = collections.deque()

    def ready(self) -> bool:
        """Whether the next batch has arrived."""
        self._ask()
        return self._futures[0].done()

    def _ask(self) -> None:
        while len(self._futures) < AHEAD:
            self._futures.append(self._client.call(self._method))

    def __next__(self) -> dict:
        self._ask()
        future = self._futures[0]
        with Wait(f'the replay server at {self._client.addr} to give a batch'):
            while True:
                try:
                    data = future.result(PAUSE)
                except rpc.Timeout:
                    self._tick()
                    continue
                self._futures.popleft()
                return data

    def save(self) -> None:
        """The place is the server's."""
        return None

    def load(self, state: None) -> None:
        pass


class Learner:
    """Trains an agent on batches of the replay server for as long as tick() lets it."""

    def __init__(self, agent: Any, client: rpc.Client, tick: Callable[[], Any], args: Any):
        self.updates = 0  # since this process started
        self.metrics = Aggregate()
        self.rate = Rate()  # of trained time steps
        self._agent, self._client, self._args = agent, client, args
        self._stream = iter(agent.stream(Remote(client, 'sample_batch_train', tick)))
        self._carry = agent.init_train(args.batch_size)
        self._sent: collections.deque[Any] = collections.deque()

    def __call__(self) -> None:
        """Do one update. Raises NotFinite as soon as numbers are not finite."""
        with timer.section('stream'):
            batch = next(self._stream)
        self._check(batch)
        with timer.section('train'):
            self._carry, outs, metrics = self._agent.train(self._carry, batch)
        self.updates += 1
        check_finite(metrics, f'Update {self.updates} of this run')
        self.rate.add(self._args.batch_size * self._args.batch_length)
        self.metrics.add(metrics)
        if 'replay' in outs:
            self._send(outs['replay'])

    def _check(self, batch: dict) -> None:
        """Raise UserError if the replay server was started with other lengths."""
        args, found = self._args, tuple(batch['is_first'].shape)
        wanted = args.batch_size, args.batch_length + args.replay_context
        if found != wanted:
            raise UserError(
                f'The replay server gives {found[0]} sequences of {found[1]} steps, expected '
                f'{wanted[0]} of {wanted[1]}; start it with the same --batch_size, '
                '--batch_length and --replay_context.'
            )

    def _send(self, data: dict) -> None:
        """Hand over what goes back to the replay; an answer only matters if it is an error."""
        while self._sent and self._sent[0].done():
            self._sent.popleft().result()
        self._sent.append(self._client.call('update', data))


class Reports:
    """Averages metrics of batches that arrive one by one while training goes on."""

    def __init__(self, agent: Any, client: rpc.Client, args: Any):
        self._agent, self._client = agent, client
        self._count = args.consec_report * args.report_batches
        self._batch_size = args.batch_size
        self._modes = ('report', 'eval') if args.eval_envs else ('report',)
        self._running: dict[str, list[Any]] = {}  # mode -> futures, of which the last is open

    def begin(self) -> None:
        """Ask for the batches of a report, unless those of the last one are still to come."""
        for mode in self._modes:
            if mode not in self._running:
                self._running[mode] = [self._ask(mode)]

    def result(self) -> dict[str, dict[str, Any]]:
        """Return the metrics, by report or eval, of the reports whose batches are all here."""
        found = {}
        for mode, futures in list(self._running.items()):
            if not futures[-1].done():
                continue
            if len(futures) < self._count:
                futures.append(self._ask(mode))
                continue
            del self._running[mode]
            with timer.section(mode):
                found[mode] = self._average([x.result() for x in futures])
        return found

    def _ask(self, mode: str) -> Any:
        return self._client.call(f'sample_batch_{mode}')

    def _average(self, batches: list[dict]) -> dict[str, Any]:
        metrics = Aggregate()
        carry = self._agent.init_report(self._batch_size)
        for batch in batches:
            carry, values = self._agent.report(carry, batch)
            metrics.add(values)
        return metrics.result()
