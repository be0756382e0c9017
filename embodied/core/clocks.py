"""Clocks of the run loops: when to log and save, and how many updates are due.

`Every` asks the wall clock, `Ratio` counts env steps. Both live in one process.
"""

import math
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .errors import UserError


class Every:
    """Return True once per `seconds` of wall-clock time.

    seconds: 0 never fires, below 0 always fires. `initial`: the first call fires as well;
    without it the first firing comes after one interval. A long gap fires once: missed
    intervals are not caught up.

    >>> time = iter([0.0, 5.0, 10.0, 11.0])
    >>> every = Every(10.0, now=lambda: next(time))  # made at 0
    >>> every(), every(), every()
    (False, True, False)
    """

    def __init__(
        self,
        seconds: float,
        initial: bool = False,
        now: Callable[[], float] = time.monotonic,
    ):
        self.seconds = seconds
        self._now = now
        self._due = now() if initial else now() + seconds

    def __call__(self) -> bool:
        """Return whether the interval has passed, and start the next one if so."""
        if self.seconds == 0:
            return False
        now = self._now()
        if self.seconds > 0 and now < self._due:
            return False
        self._due = now + self.seconds
        return True


class Ratio:
    """Return the number of repeats due at a step, `ratio` of them per step.

    The first call starts the count and returns 0; n steps later floor(n * ratio) repeats have
    been returned in all, whatever the steps at which it was called. Fractions keep this exact
    for runs of any length. ratio < 0: one repeat per call; 0: none.

    >>> ratio = Ratio(0.5)
    >>> [ratio(step) for step in (0, 1, 2, 3, 8)]
    [0, 0, 1, 0, 3]
    """

    def __init__(self, ratio: float | Fraction):
        self.ratio = exact(ratio)
        self.reset()

    @property
    def started(self) -> bool:
        """Whether the count has begun."""
        return self._last is not None

    def reset(self) -> None:
        """Forget the count: the next call starts anew."""
        self._last: int | None = None
        self._credit = Fraction(0)

    def __call__(self, step: int) -> int:
        """Return how many repeats have become due since the last call; never below 0."""
        if self.ratio < 0:
            return 1
        step = int(step)
        last = step if self._last is None else self._last
        # A counter that was set back must not owe repeats: it goes on from its new value.
        self._credit += self.ratio * max(0, step - last)
        self._last = step
        repeats = math.floor(self._credit)
        self._credit -= repeats
        return repeats

    def give_back(self, repeats: int) -> None:
        """Owe repeats again that a call returned and that were not done."""
        if self.ratio > 0:
            self._credit += repeats

    def save(self) -> dict[str, Any]:
        """Return the ratio, the step of the last call (None before it) and what is owed."""
        return {'ratio': str(self.ratio), 'last': self._last, 'credit': str(self._credit)}

    def load(self, data: dict[str, Any]) -> None:
        """Go on from a saved count; under another ratio only its step counts.

        The new ratio then applies to the steps from there on, so that neither a higher nor a
        lower one leads to a burst or a pause of repeats.
        """
        self._last = data['last']
        same = Fraction(data['ratio']) == self.ratio
        self._credit = Fraction(data['credit']) if same else Fraction(0)


def exact(value: float | Fraction) -> Fraction:
    """Return a number as the fraction its decimal digits say, so that 0.7 is 7/10.

    Raises UserError if it is not finite.

    >>> exact(0.7)
    Fraction(7, 10)
    """
    if isinstance(value, Fraction):
        return value
    if not math.isfinite(value):
        raise UserError(f'A ratio is {value}; expected a finite number (run.train_ratio).')
    return Fraction(str(float(value)))
