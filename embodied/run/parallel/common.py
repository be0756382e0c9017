"""What the parts of a parallel run share: factories, addresses, folders, and their loop."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from ...checkpoint import checkpoint, snapshot
from ...core.errors import UserError, reason
from ...core.retries import persistent

PAUSE = 0.1  # seconds between two looks at whether to log, save or end
ADDRESSES = ('actor_addr', 'replay_addr', 'logger_addr')


class Over(Exception):
    """The run is to end, said from within a wait."""


def factory(make: Callable | bytes) -> Callable:
    """Return a factory that may have come as cloudpickle bytes."""
    return cloudpickle.loads(make) if isinstance(make, bytes) else make


def folder(args: Any, name: str) -> pathlib.Path:
    """Return where a part keeps its checkpoints."""
    return pathlib.Path(args.logdir).expanduser().absolute() / 'ckpt' / name


def resumed(args: Any, name: str, parts: dict[str, Any]) -> checkpoint.Checkpoint:
    """Return the checkpoint of a part with these parts, loaded if there is one."""
    cp = checkpoint.Checkpoint(folder(args, name), args.keep)
    cp.parts.update(parts)
    if cp.exists():
        print(f'Resumed {cp.load()}', flush=True)
    return cp


def save(cp: checkpoint.Checkpoint, end: bool = False) -> None:
    """Save; a full disk is reported, and at the end a UserError. One before it stays."""
    try:
        if end:
            persistent(cp.save, f'Cannot save in {cp.directory}')
        else:
            cp.save()
    except (OSError, snapshot.Damaged) as error:
        text = f'No checkpoint in {cp.directory}: {reason(error)}. Make room for the next one.'
        if end:
            raise UserError(text) from error
        print(f'Warning: {text}', flush=True)


@contextlib.contextmanager
def rescued(cp: checkpoint.Checkpoint) -> Iterator[None]:
    """Save before an error ends the part."""
    try:
        yield
    except BaseException:
        save(cp)
        raise


def check_address(args: Any, *names: str) -> None:
    """Raise UserError for an address that a part alone cannot know."""
    for name in names:
        if '{auto}' in args[name]:
            raise UserError(
                f'--run.{name} is {args[name]!r}, a port that only --script parallel chooses; '
                'name HOST:PORT, the same for all scripts of the run.'
            )


def serve(stop: Any, work: Callable[[], Any], over: Callable[[], bool] = lambda: False) -> None:
    """Call work() again and again until the run is to end."""
    while not (stop.requested or over()):
        work()
        time.sleep(PAUSE)
