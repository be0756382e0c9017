"""The last line of a terminal while a run goes on: how far it is, or what it waits for.

Drawn by rich, which keeps what anybody prints above the line, and redraws it from a thread of
its own, so that it also moves while something is compiled. Without a terminal there is none.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..core import signals

WINDOW = 30.0  # seconds over which rates are averaged
YEARS = 10 * 365 * 24 * 3600  # an estimate beyond this says nothing


def find() -> 'Line | None':
    """A line for the terminal, if there is one that can move its cursor, and rich."""
    if not (sys.stdout and sys.stdout.isatty()) or os.environ.get('TERM') in (None, '', 'dumb'):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Line(Console())


class Line:
    """A bar with the step, rates of env steps and updates, the time left and the last score.

    It appears with the first call and is gone after `stop`.
    """

    def __init__(self, console: Any, now: Callable[[], float] = time.monotonic):
        self._console = console
        self._now = now
        self._rates: deque[tuple[float, float, float]] = deque()  # time, steps, updates
        self._last: dict[str, Any] = {'description': 'Starting', 'total': None, 'text': ''}
        self._bar: Any = None
        self._waiting = ''
        self.score = ''

    def progress(
        self,
        step: int,
        total: float,
        updates: int = 0,
        filled: int = 0,
        minimum: int = 0,
        left: float = float('inf'),
        episodes: int = 0,
        wanted: int = 0,
    ) -> None:
        """Show a step of `total`.

        updates: so far. filled of minimum: items in the replay before training starts. left:
        seconds until the run ends in any case. episodes of wanted: instead of steps.
        """
        speed, learning = self._speed(step, updates)
        if filled < minimum:
            done, of, title = filled, minimum, 'Filling the replay'
        elif wanted:
            done, of, title = episodes, wanted, 'Evaluating'
        else:
            done, of, title = step, total, 'Training' if updates else 'Running'
        parts = [f'step {step:,} / {total:,.0f}', f'{speed:,.1f} env steps/s']
        if wanted:
            parts[0] = f'episode {episodes} / {wanted}'
        if updates:
            parts.append(f'{learning:,.2f} updates/s')
        parts.append(f'{time_text(min((total - step) / speed if speed else YEARS, left))} left')
        if self.score:
            parts.append(f'score {self.score}')
        self._last = {
            'description': title, 'completed': done, 'total': of, 'text': '  '.join(parts)
        }  # fmt: skip
        self._show()

    def busy(self, text: str) -> None:
        """Show that the run waits for something; '' goes back to its progress."""
        self._waiting = text
        self._show()

    def stop(self) -> None:
        """Take the line away."""
        if self._bar:
            bar, self._bar = self._bar, None
            bar.stop()

    def _show(self) -> None:
        if self._bar is None:
            self._bar, self._task = _bar(self._console)
            self._bar.start()
            self._console.show_cursor(True)  # a run that is killed would leave it hidden
        state = self._last
        if self._waiting:
            state = {'description': self._waiting, 'total': None, 'text': ''}
        self._bar.update(self._task, **state)

    def _speed(self, step: int, updates: int) -> tuple[float, float]:
        """Env steps and updates per second."""
        now = self._now()
        self._rates.append((now, step, updates))
        while now - self._rates[0][0] > WINDOW and len(self._rates) > 2:
            self._rates.popleft()
        start, *before = self._rates[0]
        seconds = max(now - start, 1e-9)
        speeds = [(x - y) / seconds for x, y in zip((step, updates), before, strict=True)]
        return speeds[0], speeds[1]


def time_text(seconds: float) -> str:
    """Hours, minutes and seconds, after days if there are any; '?' for more than ten years."""
    if not seconds < YEARS:
        return '?'
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f'{hour}:{minute:02}:{second:02}'
    return f'{days} d {clock}' if days else clock


def _bar(console: Any) -> tuple[Any, Any]:
    """A bar of rich with one task, whose title says so while something is compiled."""
    from rich import progress

    class Title(progress.TextColumn):
        def render(self, task: Any) -> Any:
            if signals.is_compiling():
                return progress.Text('Compiling')
            return super().render(task)

    bar = progress.Progress(
        progress.SpinnerColumn('dots' if console.encoding.startswith('utf') else 'line'),
        Title('{task.description}'),
        progress.BarColumn(20),
        progress.TextColumn('{task.fields[text]}', markup=False),
        progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        refresh_per_second=4,
    )
    return bar, bar.add_task('Starting', total=None, text='')
