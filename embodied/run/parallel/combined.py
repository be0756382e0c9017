"""All parts of a parallel run that are not started elsewhere, started and ended together."""

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import cloudpickle

from ...checkpoint import checkpoint
from ...core import output, processes, rpc, signals
from ...core.errors import UserError
from ...core.waiting import Wait
from .. import lock, start
from . import common, envs
from .agent import parallel_agent
from .logger import parallel_logger
from .replay import parallel_replay

SAVING = 600.0  # seconds in which a part may save at the end
ELSEWHERE = {'remote_replay': 'replay_addr', 'remote_envs': 'actor_addr'}


def combined(
    make_agent: Callable | bytes,
    make_replay_train: Callable | bytes,
    make_replay_eval: Callable | bytes,
    make_env_train: Callable | bytes,
    make_env_eval: Callable | bytes,
    make_stream: Callable | bytes,
    make_logger: Callable | bytes,
    args: Any,
    ready: Callable[[], Any] | None = None,
) -> None:
    """Train with the agent in this process or, with run.agent_process, in one of its own.

    The logger, the replay (unless run.remote_replay) and the environments (unless
    run.remote_envs) are processes. One that is killed is started anew, up to
    run.env_restarts times an hour, and goes on where it saved; an error in one ends the run,
    after all have saved. Raises that error.
    """
    start.check(args)
    args = addresses(args)
    with (
        output.guarded(),
        signals.Stop() as stop,
        lock.held(args.logdir),
        contextlib.closing(processes.Group()) as group,
    ):
        begin = functools.partial(group.start, restarts=args.env_restarts)
        logger = begin('logger', functools.partial(parallel_logger, _bytes(make_logger), args))
        others = [logger]
        if not args.remote_replay:
            makers = map(_bytes, (make_replay_train, make_replay_eval, make_stream))
            others.insert(0, begin('replay', functools.partial(parallel_replay, *makers, args)))
        step = _step(args)
        makers = map(_bytes, (make_env_train, make_env_eval))
        actors = [] if args.remote_envs else envs.start(group, *makers, args, step)
        try:
            if args.agent_process:
                run = functools.partial(parallel_agent, _bytes(make_agent), args, ready)
                _supervise(group, begin('agent', run), stop)
            else:
                parallel_agent(make_agent, args, ready, stop, group.failed.is_set)
        except Exception:
            group.check()  # what failed first is the reason of what failed here
            raise
        finally:
            # Environments first, and the logger last, so that nobody waits for anybody.
            with Wait('the environments to close'):
                group.end(actors)
            for part in others:
                with Wait(f'the {part.name} to save and end'):
                    group.end([part], SAVING)
        group.check()


def addresses(args: Any) -> Any:
    """Return the arguments with a free port for each {auto}.

    Raises UserError where a part that is started elsewhere could not know it, and for a port
    here that is taken.
    """
    for flag, name in ELSEWHERE.items():
        if args[flag] and '{auto}' in args[name]:
            raise UserError(
                f'With --run.{flag} True, --run.{name} must name HOST:PORT, the same as there; '
                f'found {args[name]!r}.'
            )
    args = args.update({name: rpc.fill(args[name]) for name in common.ADDRESSES})
    if len({args[name] for name in common.ADDRESSES}) < len(common.ADDRESSES):
        raise UserError('--run.actor_addr, replay_addr and logger_addr must differ.')
    for name in common.ADDRESSES:
        if not (name == 'replay_addr' and args.remote_replay):
            rpc.Server(args[name], name, args.bind).close()
    return args


def _supervise(group: processes.Group, agent: processes.Process, stop: signals.Stop) -> None:
    """Wait for the end of the agent's process, or of the run."""
    stop.begin()
    while group.watches(agent) and not stop.requested and not group.failed.is_set():
        time.sleep(common.PAUSE)
    with Wait('the agent to save and end'):
        group.end([agent], SAVING)


def _step(args: Any) -> int:
    """The env step at which the run goes on."""
    folder = common.folder(args, 'agent')
    if not checkpoint.Checkpoint(folder).exists():
        return 0
    return int(checkpoint.read(folder, ['step'])['step'])


def _bytes(make: Callable | bytes) -> bytes:
    return make if isinstance(make, bytes) else cloudpickle.dumps(make)
