"""Metrics on the terminal: one readable block per write."""

import math
import re

import numpy as np

from ..core.errors import UserError
from . import live
from .logger import Summary


class Terminal:
    """Print the scalars whose names match `pattern`, a regular expression ('' = all).

    Up to three go on the line of the step, more get a line each. Where the output is a
    terminal, a line below them shows how far the run is; a pipe or file gets plain lines.
    Raises UserError if the pattern is no regular expression.

    >>> output = Terminal('loss|score')
    >>> output.write([(1000, 'loss', np.array(0.123456)), (1000, 'fps', np.array(9))])
    [Step 1,000]  loss 0.1235
    """

    name = 'terminal'

    def __init__(self, pattern: str = ''):
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise UserError(
                f'{pattern!r} is not a regular expression: {error} (logger.filter).'
            ) from error
        self._line = live.find()

    def write(self, summaries: list[Summary]) -> None:
        """Print a block headed by the last step."""
        scores = [value for _, name, value in summaries if name == 'episode/score']
        if self._line and scores:
            self._line.score = format_number(scores[-1])
        shown = {
            name: format_number(value)
            for _, name, value in summaries
            if not isinstance(value, str) and value.ndim == 0 and self._pattern.search(name)
        }
        title = f'Step {max(step for step, _, _ in summaries):,}'
        if len(shown) <= 3:
            pairs = [f'{name} {value}' for name, value in shown.items()]
            text = '  '.join([f'[{title}]', *pairs])
        else:
            width = max(map(len, shown))
            rows = [f'  {name:<{width}}  {value}' for name, value in shown.items()]
            text = '\n'.join(['', f'{f"── {title} ":─<{width + 12}}', *rows])
        print(text, flush=True)

    def progress(self, step: int, total: float, **state: float) -> None:
        """Show how far the run is, see `live.Line`."""
        if self._line:
            self._line.progress(step, total, **state)

    def busy(self, text: str) -> None:
        """Show what the run waits for; '' when the wait is over."""
        if self._line:
            self._line.busy(text)

    def close(self) -> None:
        """Take the live line away."""
        if self._line:
            self._line.stop()


def format_number(value: np.ndarray) -> str:
    """Return four significant digits; whole numbers in full, up to a million.

    >>> format_number(np.array(3.14159)), format_number(np.array(12345))
    ('3.142', '12,345')
    """
    number = float(value) + 0.0  # which turns -0.0 into 0.0
    if number == round(number, 0) and abs(number) < 1e6:
        return f'{number:,.0f}'
    if 1e-3 <= abs(number) < 1e6:
        decimals = max(1, 3 - math.floor(math.log10(abs(number))))
        return f'{number:,.{decimals}f}'.rstrip('0').rstrip('.')
    return f'{number:.3g}'
