"""When a run saves its checkpoints, and what a full disk does to it."""

import math
from typing import Any

from elements import timer

from ..checkpoint import checkpoint, snapshot
from ..core import clocks
from ..core.errors import UserError, reason
from ..core.retries import persistent


class Saver:
    """Saves every run.save_every seconds, after the first updates, before the first report, and
    at the end.

    An error of the environments saves as well, if there is something to lose. Every
    run.keep_every env steps it also saves one that stays. A checkpoint that cannot be written
    is reported; a previous one stays and the run goes on.
    """

    def __init__(self, cp: checkpoint.Checkpoint, args: Any):
        self._cp = cp
        self._step = cp.parts['step']
        self._due = clocks.Every(args.save_every)
        self._every = args.keep_every or math.inf
        self._seen = int(self._step)  # when it was last asked
        self._permanent = False  # whether the next one is to stay
        self._first = bool(args.save_every) and not cp.exists()
        self._saved = None if self._first else self._seen
        self._updates = self._learned = 0  # by the last save, and when it was last asked
        self._reported = False

    def __call__(self, updates: int) -> None:
        """Save if it is time to; updates: how many there were in this process."""
        self._learned = updates
        step, before = int(self._step), self._seen
        self._seen = step
        due = self._due()
        if step // self._every > before // self._every:
            self._permanent = due = True
        if self._first and updates:
            self._first, due = False, True
        if due:
            self._try()

    def rescue(self, updates: int) -> None:
        """Save, if there were updates since the last save, what an error would lose."""
        if updates > self._updates:
            self._learned = updates
            self._try()

    def before_report(self, updates: int) -> None:
        """Save before the first report, which compiles; a signal then ends the run at once."""
        if not self._reported:
            self._reported = True
            self.rescue(updates)

    def finish(self) -> None:
        """Save the end of the run. Raises UserError if that cannot be written."""
        if self._saved == int(self._step):
            return
        try:
            persistent(self._save, f'Cannot save step {int(self._step):,}')
        except (OSError, snapshot.Damaged) as error:
            place = self._cp.directory
            there = f'An earlier one in {place} stays; make room and resume from it.'
            none = 'There is no earlier one; make room before the next run.'
            raise UserError(
                f'The checkpoint of step {int(self._step):,} could not be saved: '
                f'{reason(error)}. {there if self._cp.exists() else none}'
            ) from error

    def _try(self) -> None:
        try:
            self._save()
        except (OSError, snapshot.Damaged) as error:
            print(
                f'Warning: no checkpoint at step {int(self._step):,}: {reason(error)}',
                flush=True,
            )

    def _save(self) -> None:
        step = int(self._step)  # which an actor in another thread goes on to count
        with timer.section('save'):
            self._cp.save(self._permanent)
        self._saved, self._permanent = step, False
        self._updates = self._learned
