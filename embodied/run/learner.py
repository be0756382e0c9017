"""The learning half of a run loop: which updates are due, and what goes through them."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from elements import timer

from ..core import clocks
from ..core.errors import NotFinite
from ..logging import Aggregate, Rate
from . import start

PAUSE = 0.05  # seconds between two looks at whether the update is compiled
WATCHED = re.compile(r'(.*/)?(loss(/.*)?|param_\w+)')  # metrics that must be finite
OVERFLOW = re.compile(r'(.*/)?grad_overflow')  # says that an update was left out


class Learner:
    """Updates an agent from a replay, in proportion to the env steps.

    One update trains batch_size * batch_length time steps; train_ratio of them are due per
    env step. Updates begin once the replay holds as many items, and count env steps from
    then. Reports draw from a stream of their own and change nothing here.

    busy(text): a context that shows what the run waits for.
    """

    def __init__(
        self, agent: Any, replay: Any, make_stream: Any, args: Any,
        busy: Callable[[str], Any] = contextlib.nullcontext,
    ):  # fmt: skip
        self.minimum = start.minimum(args)
        self.ratio = clocks.Ratio(clocks.exact(args.train_ratio) / self.minimum)
        self.updates = 0  # since this process started
        self.metrics = Aggregate()
        self.rate = Rate()  # of trained time steps
        self._agent = agent
        self._replay = replay
        self._args = args
        self._busy = busy
        self._train_stream = iter(agent.stream(make_stream(replay, 'train')))
        # Without agent.stream, which may fetch ahead: a report is of what is there now.
        self._report_stream = iter(make_stream(replay, 'report'))
        self._carry: Any = None

    def prepare(self) -> None:
        """Let the agent begin to compile: the first update is to wait as little as may be."""
        self._carry = self._agent.init_train(self._args.batch_size)

    @property
    def ready(self) -> bool:
        """Whether the replay holds what training starts with."""
        return len(self._replay) >= self.minimum

    def __call__(self, step: int, ahead: int = 0, over: Callable[[], bool] = bool) -> None:
        """Do the updates that are due at an env step.

        ahead: items that the replay holds of later steps, since all envs step together; they
        do not count for the beginning. over(): whether the run is to end; it is asked before
        each update, and what is not done then stays due for the run that goes on. Raises
        NotFinite for a loss or parameter that is not finite.
        """
        if len(self._replay) - ahead >= self.minimum:
            due = self.ratio(step)
            self._wait(over)
            while due and not over():
                self._update(step)
                due -= 1
            self.ratio.give_back(due)

    def report(self) -> dict[str, Any]:
        """Return the metrics of consec_report * report_batches batches, averaged."""
        return average(self._agent, self._report_stream, self._args)

    def progress(self) -> dict[str, int]:
        """Updates so far, and how many items the replay has of those that they begin with."""
        minimum = self.minimum if self.ratio.ratio else 0
        return {'updates': self.updates, 'filled': len(self._replay), 'minimum': minimum}

    def describe(self) -> str:
        """Say how many updates there are per env step and when they begin."""
        text = f'updates per env step: {_describe_ratio(self.ratio.ratio)}'
        items = len(self._replay)
        if self.ready:
            return f'{text}\ntraining starts at once: the replay holds {items:,} items'
        # The first item of each worker needs a whole sequence, later ones a step each.
        steps = self._args.envs * (self._replay.length - 1) + self.minimum
        after = f' after {steps:,} env steps,' if not items else ''
        return (
            f'{text}\ntraining starts{after} when the replay holds {self.minimum:,} items '
            f'(now {items:,})'
        )

    def _wait(self, over: Callable[[], bool]) -> None:
        """Until the update is compiled, or the run is to end."""
        if not self._agent.ready():
            with self._busy('Compiling the update'), timer.section('compile'):
                while not (self._agent.ready() or over()):
                    time.sleep(PAUSE)

    def _update(self, step: int) -> None:
        with timer.section('stream'):
            batch = next(self._train_stream)
        with timer.section('train'):
            self._carry, outs, metrics = self._agent.train(self._carry, batch)
        check_finite(metrics, f'Update {self.updates + 1} of this run, at step {int(step):,}')
        if 'replay' in outs:
            with timer.section('replay_update'):
                self._replay.update(outs['replay'])
        self.updates += 1
        self.rate.add(self.minimum)
        self.metrics.add(metrics)


def average(agent: Any, stream: Iterator, args: Any) -> dict[str, Any]:
    """Return the metrics of consec_report * report_batches batches of a stream, averaged."""
    metrics = Aggregate()
    carry = agent.init_report(args.batch_size)
    for _ in range(args.consec_report * args.report_batches):
        carry, values = agent.report(carry, next(stream))
        metrics.add(values)
    return metrics.result()


def check_finite(metrics: Mapping[str, Any], where: str) -> None:
    """Raise NotFinite naming the first loss or parameter that is not finite.

    Where an update was left out because its gradients overflowed, losses may be anything.
    """
    skipped = any(value for name, value in metrics.items() if OVERFLOW.fullmatch(name))
    for name, value in metrics.items():
        watched = WATCHED.fullmatch(name) and not (skipped and 'loss' in name)
        if watched and not np.isfinite(value).all():
            raise NotFinite(
                f'{where}: the metric {name} is {value}. The run ends and keeps its last '
                'checkpoint; a lower --agent.opt.lr or --jax.compute_dtype float32 may help.'
            )


def _describe_ratio(ratio: Fraction) -> str:
    if ratio < 0:
        return '1 (run.train_ratio below 0: one after every step)'
    if ratio == 0:
        return '0 (run.train_ratio 0: no training)'
    return f'{float(ratio):g} ({ratio.numerator} per {ratio.denominator})'
