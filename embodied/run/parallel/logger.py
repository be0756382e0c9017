"""The logger of a parallel run: counts steps and episodes, and writes all metrics."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import logging
from ...core import clocks, output, rpc, signals
from .. import lock
from . import common

EARLY = 100  # messages that are kept until the step is known


def parallel_logger(make_logger: Callable | bytes, args: Any) -> None:
    """Serve run.logger_addr until the run ends.

    | endpoint | argument | does |
    |---|---|---|
    | add | {metrics: name -> value, prefix: str} | collects metrics under the current step |
    | transitions | {step, envid, is_eval (n,), rows, images, logs} | counts them and episodes |
    | step | | returns {step: env steps so far} |

    rows: what `logging.Episodes` reads of n transitions, without images; images: those of
    some, logs: what only some log, both by the number of the row.
    """
    common.check_address(args, 'logger_addr')
    with (
        output.guarded(),
        signals.Stop() as stop,
        lock.held(common.folder(args, 'logger')),
        contextlib.closing(common.factory(make_logger)()) as logger,
    ):
        writer = Writer(logger, args)
        cp = common.resumed(args, 'logger', {'step': logger.step})
        server = rpc.Server(args.logger_addr, 'logger', args.bind)
        server.bind('add', writer.add, once=True)
        server.bind('transitions', writer.transitions, once=True)
        server.bind('step', lambda: {'step': int(logger.step)})
        save_due = clocks.Every(args.save_every)
        log_due = clocks.Every(args.log_every)

        def work():
            server.check()
            if log_due():
                writer.log(server.stats())
            if save_due():
                common.save(cp)

        with common.rescued(cp), server:
            stop.begin()
            common.serve(stop, work)
        writer.log(server.stats(), end=True)
        common.save(cp, end=True)


class Writer:
    """What arrives, on its way to a logger; safe between threads."""

    def __init__(self, logger: logging.Logger, args: Any):
        self._logger, self._first_eval = logger, args.envs
        self._lock = threading.Lock()
        # Until the actor says at which step the run goes on, what arrives has none: a logger
        # that was killed has written lines of later steps than it has saved.
        self._early: list[dict] | None = []
        self._train = logging.Episodes(args.episode_timeout)
        self._eval = logging.Episodes(args.episode_timeout)
        self._scores = logging.Aggregate()  # of evaluation episodes
        self._usage = logging.Usage(**args.usage)
        self._rate = logging.Rate()

    def add(self, message: dict) -> dict:
        """Collect metrics of another part."""
        with self._lock:
            if self._early is None:
                self._logger.add(message['metrics'], prefix=message.get('prefix'))
            else:
                self._early = [*self._early[1 - EARLY :], message]
        return {}

    def transitions(self, message: dict) -> dict:
        """Count the steps that the actor has counted, and the episodes."""
        step, images = int(message['step']), message['images']
        logs = message.get('logs', {})
        with self._lock:
            self._logger.step.load(max(step, int(self._logger.step)))
            if self._early is not None:
                # Lines of an earlier run after this step are about to come again.
                self._logger.rewind(step - len(message['envid']))
                self._begin()
            for row, envid in enumerate(message['envid']):
                part = {k: v[row] for k, v in message['rows'].items()}
                part |= images.get(str(row), {}) | logs.get(str(row), {})
                self._add(part, int(envid), bool(message['is_eval'][row]))
        return {}

    def log(self, server: dict, end: bool = False) -> None:
        """Write all that was collected, if the step is known or this is the end."""
        with self._lock:
            if self._early is not None and not end:
                return
            self._begin()
            logger = self._logger
            logger.add(self._train.stats())
            logger.add(self._scores.result(), prefix='eval')
            logger.add(self._eval.stats(), prefix='eval')
            logger.add(self._train.counts(), prefix='parallel')
            logger.add({'fps/env': self._rate.result()})
            logger.add(self._usage.stats(), prefix='usage/logger')
            logger.add(server, prefix='server/logger')
            logger.write()

    def _begin(self) -> None:
        early, self._early = self._early or (), None
        for message in early:
            self._logger.add(message['metrics'], prefix=message.get('prefix'))

    def _add(self, transition: dict, envid: int, is_eval: bool) -> None:
        if is_eval:
            ended = self._eval.add(transition, envid - self._first_eval)
            self._scores.add(ended or {})
            return
        self._rate.add()
        if ended := self._train.add(transition, envid):
            self._logger.add(ended)
            self._logger.write()


def rows(
    transitions: dict[str, np.ndarray], logs: Sequence[dict], shown: Sequence[int]
) -> dict[str, Any]:
    """Return the parts `rows`, `images` and `logs` of a message about n transitions.

    logs: the `log/` keys of each; shown: the rows whose images are wanted.
    """
    kept = {k: transitions[k] for k in ('reward', 'is_first', 'is_last')}
    rare = [{k: np.asarray(v) for k, v in log.items() if not _is_image(v)} for log in logs]
    for key in sorted(set(rare[0]).intersection(*rare[1:])):
        if _alike([x[key] for x in rare]):
            kept[key] = np.stack([x.pop(key) for x in rare])
    images = {}
    for row in shown:
        own = {k: v[row] for k, v in transitions.items()} | logs[row]
        images[str(row)] = {k: v for k, v in own.items() if _is_image(v)}
    return {
        'rows': kept,
        'images': images,
        'logs': {str(i): x for i, x in enumerate(rare) if x},
    }


def _alike(values: Sequence[np.ndarray]) -> bool:
    """Whether these are numbers that make one array."""
    first = values[0]
    return first.dtype.kind in 'biuf' and all(
        (x.shape, x.dtype) == (first.shape, first.dtype) for x in values
    )


def _is_image(value: Any) -> bool:
    value = np.asarray(value)
    return value.dtype == np.uint8 and value.ndim == 3
