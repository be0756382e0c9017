"""The learning half of a run loop: which updates are due, and what goes through them."""

from fractions import Fraction
from typing import Any

from elements import timer

from ..core import clocks
from ..logging import Aggregate, Rate


class Learner:
    """Updates an agent from a replay, in proportion to the env steps.

    One update trains batch_size * batch_length time steps; train_ratio of them are due per
    env step. Updates begin once the replay holds as many items, and count env steps from
    then. Reports draw from a stream of their own and change nothing here.
    """

    def __init__(self, agent: Any, replay: Any, make_stream: Any, args: Any):
        self.minimum = args.batch_size * args.batch_length
        self.ratio = clocks.Ratio(clocks.exact(args.train_ratio) / self.minimum)
        self.updates = 0  # since this process started
        self.metrics = Aggregate()
        self.rate = Rate()  # of trained time steps
        self._agent = agent
        self._replay = replay
        self._args = args
        self._train_stream = iter(agent.stream(make_stream(replay, 'train')))
        self._report_stream = iter(agent.stream(make_stream(replay, 'report')))
        self._carry = agent.init_train(args.batch_size)

    @property
    def ready(self) -> bool:
        """Whether the replay holds what training starts with."""
        return len(self._replay) >= self.minimum

    def __call__(self, step: int, ahead: int = 0) -> None:
        """Do the updates that are due at an env step.

        ahead: items that the replay holds of later steps, since all envs step together; they
        do not count for the beginning.
        """
        if len(self._replay) - ahead >= self.minimum:
            for _ in range(self.ratio(step)):
                self._update()

    def report(self) -> dict[str, Any]:
        """Return the metrics of consec_report * report_batches batches, averaged."""
        metrics = Aggregate()
        carry = self._agent.init_report(self._args.batch_size)
        for _ in range(self._args.consec_report * self._args.report_batches):
            carry, values = self._agent.report(carry, next(self._report_stream))
            metrics.add(values)
        return metrics.result()

    def describe(self) -> str:
        """Say how many updates there are per env step and when they begin."""
        text = f'updates per env step: {_describe_ratio(self.ratio.ratio)}'
        items = len(self._replay)
        if self.ready:
            return f'{text}\ntraining starts at once: the replay holds {items:,} items'
        # The first item of each worker needs a whole sequence, later ones a step each.
        steps = self._args.envs * (self._replay.length - 1) + self.minimum - items
        return (
            f'{text}\ntraining starts after {steps:,} env steps, when the replay holds '
            f'{self.minimum:,} items (now {items:,})'
        )

    def _update(self) -> None:
        with timer.section('stream'):
            batch = next(self._train_stream)
        with timer.section('train'):
            self._carry, outs, metrics = self._agent.train(self._carry, batch)
        if 'replay' in outs:
            with timer.section('replay_update'):
                self._replay.update(outs['replay'])
        self.updates += 1
        self.rate.add(self.minimum)
        self.metrics.add(metrics)


def _describe_ratio(ratio: Fraction) -> str:
    if ratio < 0:
        return '1 (run.train_ratio below 0: one after every step)'
    if ratio == 0:
        return '0 (run.train_ratio 0: no training)'
    return f'{float(ratio):g} ({ratio.numerator} per {ratio.denominator})'
