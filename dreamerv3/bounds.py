"""Which values the keys of the configuration take, by their entries in config_help.yaml."""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamerv3 import config_help
from embodied import UserError

INTERVAL = re.compile(r'([\[(])(.+), (.+)([\])])')


@dataclass(frozen=True)
class Interval:
    """The numbers between two ends, each of which belongs to it or not.

    text: its notation, such as `[0, 1)`.
    """

    text: str
    low: float
    high: float
    low_in: bool
    high_in: bool

    @classmethod
    def parse(cls, text: str) -> 'Interval':
        """From its notation. Raises ValueError for another text."""
        found = INTERVAL.fullmatch(text)
        if not found:
            raise ValueError(
                f'{text!r} in {config_help.PATH.name} is no interval such as [0, 1)'
            )
        left, low, high, right = found.groups()
        return cls(text, float(low), float(high), left == '[', right == ']')

    def __contains__(self, value: float) -> bool:
        above = value > self.low or (self.low_in and value == self.low)
        return above and (value < self.high or (self.high_in and value == self.high))

    def __str__(self) -> str:
        """In words that follow on `must be`."""
        low, high = map(_show, (self.low, self.high))
        above = f'{"at least" if self.low_in else "more than"} {low}'
        below = f'{"at most" if self.high_in else "less than"} {high}'
        finite = [x for x, end in ((above, self.low), (below, self.high)) if math.isfinite(end)]
        return ' and '.join(finite) or 'finite'


@functools.cache
def interval(key: str) -> Interval | None:
    """Return the interval of a key that holds numbers; None for other keys."""
    text = config_help.find(key).bounds
    return Interval.parse(text) if text else None


def choices(key: str) -> tuple[str, ...]:
    """Return the values of a text with a fixed set of them; none for other keys."""
    return config_help.find(key).choices


def check(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise UserError for a value outside of its bounds, with its default as an example.

    values and defaults are flat.
    """
    for key, value in values.items():
        check_choice(key, value, choices(key))
        if config_help.find(key).kind == config_help.REGEX:
            _check_regex(key, value)
        if found := interval(key):
            for number in value if isinstance(value, (list, tuple)) else [value]:
                _check_number(key, number, found, defaults[key])


def check_choice(key: str, value: Any, accepted: tuple[str, ...]) -> None:
    """Raise UserError for a text that is none of the accepted ones, if there are any."""
    if accepted and value not in accepted:
        raise UserError(f'--{key} takes {", ".join(accepted)}; found {value!r}.')


def _check_number(key: str, value: float, interval: Interval, default: Any) -> None:
    if value in interval and single(value) in interval:
        return
    ends = (interval.low, interval.high)
    words = 'finite' if math.isinf(single(value)) and single(value) in ends else interval
    example = _show(default[0] if isinstance(default, (list, tuple)) else default)
    raise UserError(f'--{key} must be {words}, such as {example}; found {value}.')


def _show(number: float) -> str:
    """As one would type it: 1e10, not 1e+10."""
    return re.sub(r'e\+0*', 'e', f'{number:g}')


def single(value: float) -> float:
    """A number as a compiled step sees it: in float32, where the tiniest count as zero."""
    if isinstance(value, int):
        return value
    with np.errstate(over='ignore', under='ignore'):
        result = float(np.float32(value))
    return 0.0 if abs(result) < np.finfo(np.float32).tiny else result


def _check_regex(key: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as e:
        raise UserError(f'--{key} is not a valid regular expression: {e}.') from e
