"""What the run loops do before their first step."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

from ..checkpoint import checkpoint, reference_checkpoint
from ..core.errors import UserError
from ..core.workers import leave_if_imported
from .driver import Driver, accepts


def check(args: Any) -> None:
    """Raise UserError for a run that cannot begin.

    In a process that imports the script of the run, see `leave_if_imported`, this is its end.
    """
    leave_if_imported()
    check_lengths(args)


def check_lengths(args: Any) -> None:
    """Raise UserError for lengths that do not fit each other."""
    report = args.report_length * args.consec_report
    train = args.batch_length * args.consec_train
    if report > train:
        raise UserError(
            f'A report of {report} steps (report_length x consec_report) is longer than the '
            f'replayed sequence of {train} (batch_length x consec_train).\n'
            'Lower --report_length or raise --batch_length.'
        )


def minimum(args: Any) -> int:
    """The items that a replay holds when training starts: the steps of one update.

    The env step with which it holds them is the one from which all run loops count updates.
    """
    return args.batch_size * args.batch_length


def check_replay(replay: Any, args: Any) -> None:
    """Raise UserError if the replay can never hold the items that training starts with."""
    if replay.capacity is not None:
        check_capacity(replay.capacity, args)


def check_capacity(capacity: int, args: Any) -> None:
    """Raise UserError if a replay of so many items can never hold a batch."""
    batch = minimum(args)
    if capacity < batch:
        raise UserError(
            f'The replay holds {capacity} items at most, fewer than one batch of {batch} '
            '(batch_size x batch_length), so that training would never start; raise '
            '--replay.size.'
        )


def check_untrained(args: Any) -> None:
    """Raise UserError if the logdir holds the checkpoints of a run that trains."""
    folder = pathlib.Path(args.logdir).expanduser()
    if (folder / 'ckpt').exists():
        raise UserError(
            f'{folder} is the folder of a training run, whose metrics an evaluation would '
            'replace; take another --logdir.'
        )


class Inserter:
    """A callback for `Driver.on_batch` that inserts, and first says the size to come.

    failed: whether the replay has not taken the last step, of which nothing is stored then.
    """

    def __init__(self, replay: Any):
        self.failed = False
        self._replay, self._said = replay, False

    def __call__(self, transitions: Any, workers: Any, *request: Any) -> None:
        """Insert a step of each worker."""
        self.failed = True
        self._replay.add_batch(transitions, workers, *request)
        self.failed = False
        if not self._said:
            self._said = True
            for line in self._replay.describe():
                print(line, flush=True)


def make_driver(
    make_env: Callable, count: int, args: Any, step: int = 0, overlap: bool = False
) -> Driver:
    """Return a driver of `count` envs, in one process each or, with run.debug, in this one.

    With run.env_python each has a process of that interpreter.

    step: at which the run goes on. A make_env with a parameter `step` gets it, one with
    `attempt` the number of restarts (see `Driver`), so that no env repeats what it drew.
    overlap: see `Driver`.
    """
    if count < 1:
        raise UserError(f'There are {count} environments; expected at least 1 (run.envs).')
    make_env = functools.partial(make_env, step=step) if _at(make_env, step) else make_env
    makers = [functools.partial(make_env, index) for index in range(count)]
    return Driver(
        makers,
        parallel=not args.debug,
        timeout=args.env_timeout,
        restarts=args.env_restarts,
        python=args.env_python,
        overlap=overlap,
    )


def _at(make_env: Callable, step: int) -> bool:
    return step > 0 and accepts(make_env, 'step')


def find_agent(args: Any) -> pathlib.Path:
    """Return the checkpoint that run.from_checkpoint stands for.

    It may be a run folder, its ckpt folder or a checkpoint, and one of the reference with
    run.trust_pickle. Raises UserError if there is none.
    """
    return _pickled(args) or checkpoint.find(args.from_checkpoint)[0]


def load_agent(agent: Any, args: Any, regex: str = '.*') -> None:
    """Load the agent alone from run.from_checkpoint; with a regex, the names that match it.

    Raises UserError if there is none or it does not fit.
    """
    if folder := _pickled(args):
        if not hasattr(agent, 'from_reference'):
            raise UserError(
                f'{folder} is of the reference; this agent takes checkpoints of this package.'
            )
        data = agent.from_reference(reference_checkpoint.read(folder / 'agent.pkl'))
    else:
        data = checkpoint.read(args.from_checkpoint, ['agent'])['agent']
    print(f'Loading the agent from {folder or args.from_checkpoint}', flush=True)
    if regex == '.*':
        agent.load(data)
    else:
        agent.load(data, regex=regex)


def _pickled(args: Any) -> pathlib.Path | None:
    return reference_checkpoint.find(args.from_checkpoint) if args.trust_pickle else None
