"""The environments of a parallel run: one process each, clients of the actor.

An environment keeps at most one observation under way, and says which actor it is for. One
that was started anew asks for a reset instead, so that nothing is stored twice.
"""

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core import output, processes, rpc, signals, warn
from ...core.errors import UserError
from ...core.faults import Faults, cut
from ...core.waiting import Wait
from ...core.workers import LocalEnv, accepts, leave_if_imported
from . import common

ATTEMPTS = 1000  # how far a restart within a process is from those of the process


def parallel_envs(make_env: Any, make_env_eval: Any, args: Any) -> None:
    """Run run.envs training and run.eval_envs evaluation environments until the run ends.

    One that is killed is started anew, up to run.env_restarts times an hour.
    """
    leave_if_imported()
    common.check_address(args, 'actor_addr')
    with (
        output.guarded(),
        signals.Stop() as stop,
        contextlib.closing(processes.Group()) as group,
    ):
        start(group, make_env, make_env_eval, args)
        stop.begin()
        # One that was told that the run is over speaks for those that still wait to ask.
        common.serve(stop, group.check, group.ended.is_set)
        group.check()


def start(
    group: processes.Group, make_env: Any, make_env_eval: Any, args: Any, step: int = 0
) -> list[processes.Process]:
    """Start all environments in a group of processes; step: at which the run goes on."""
    if args.envs + args.eval_envs < 1:
        raise UserError('There are no environments; expected at least 1 (run.envs).')
    found = []
    for envid in range(args.envs + args.eval_envs):
        is_eval = envid >= args.envs
        make = make_env_eval if is_eval else make_env
        run = functools.partial(parallel_env, make, envid, args, is_eval, step)
        found.append(group.start(f'env{envid}', run, args.env_restarts, always=True))
    return found


def parallel_env(
    make_env: Any, envid: int, args: Any, is_eval: bool = False, step: int = 0, attempt: int = 0
) -> None:
    """Step environment `envid` with the actions of the actor until that says the run is over.

    Evaluation environments are made with their number among their like. A make_env with
    parameters `step` or `attempt` gets where the run goes on and how often this environment
    was restarted. An environment that raises is made anew unless that is no use (see
    `core.faults`). Raises UserError for an observation that it or the actor does not take.
    """
    common.check_address(args, 'actor_addr')
    make = functools.partial(common.factory(make_env), envid - args.envs * is_eval)
    make = functools.partial(make, step=step) if step and accepts(make, 'step') else make
    with output.guarded(), _ending(), contextlib.ExitStack() as stack:
        warnings: list[list[str]] = []  # that the actor says, once for all environments
        warn.hand_over(lambda *warning: warnings.append([*warning]))
        stack.callback(warn.hand_over, None)
        env = stack.enter_context(contextlib.closing(_Env(make, envid, args, attempt)))
        client = rpc.Client(args.actor_addr, f'env{envid}', server='actor')
        stack.callback(client.close)
        wait = Wait(f'env {envid} for the actor at {args.actor_addr}')
        act = env.first()
        actor, word = client.call('ident'), 'go'
        while word != 'end':
            obs = env.step(act)
            with wait:
                about = {'actor': _result(actor), 'envid': envid, 'is_eval': is_eval}
                about |= {'obs': obs, 'warnings': [*warnings]}
                warnings.clear()
                act, word = _result(client.call('act', about))
            if word == 'reset':
                actor = client.call('ident')
            act['reset'] = np.asarray(word == 'reset' or bool(obs['is_last']))


def _result(future: Any) -> Any:
    try:
        return future.result()
    except rpc.RemoteError as error:
        raise UserError(str(error)) from None


class _Env:
    """The environment of this process, made anew where that is of use when it raises."""

    def __init__(self, make: Any, envid: int, args: Any, attempt: int):
        self._make, self._envid, self._attempt = make, envid, attempt
        self._faults = Faults(args.env_restarts)
        self._watch = _Watch(envid, args.env_timeout)
        self._steps = 0
        self._env = self._new(attempt)

    def first(self) -> dict[str, Any]:
        """The action that resets."""
        _, act_space = self._env.spaces()
        act = {k: np.zeros(space.shape, space.dtype) for k, space in act_space.items()}
        return {**act, 'reset': np.ones((), bool)}

    def step(self, act: dict[str, Any]) -> dict[str, Any]:
        """Act, and return what follows: the begin of an episode after a restart."""
        self._steps += 1
        failed = False
        while True:
            try:
                if failed:
                    act = self._restart()
                with self._watch, Wait(f'env {self._envid} to answer, step {self._steps}'):
                    self._env.send(act)
                    obs = self._env.receive()
            except UserError as error:
                place = f'Env {self._envid}, step {self._steps}'
                raise UserError(f'{place}: {cut(str(error))}') from error
            except Exception as error:
                self._faults.add(self._envid, error)
                failed = True
            else:
                if obs['is_last']:
                    self._faults.finished(self._envid)
                return obs

    def close(self) -> None:
        self._env.close()

    def _restart(self) -> dict[str, Any]:
        self._env.kill()
        self._attempt += ATTEMPTS
        self._env = self._new(self._attempt)
        return self.first()

    def _new(self, attempt: int) -> LocalEnv:
        make = self._make
        if attempt and accepts(make, 'attempt'):
            make = functools.partial(make, attempt=attempt)
        with Wait(f'env {self._envid} to be made'):
            return LocalEnv(make, self._envid)


class _Watch:
    """Ends the process if a step takes longer than it may; a supervisor starts it anew."""

    def __init__(self, envid: int, timeout: float):
        self._envid, self._timeout = envid, timeout
        self._began: float | None = None
        if timeout:
            threading.Thread(target=self._look, name='watch', daemon=True).start()

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *error: Any) -> None:
        self._began = None

    def _look(self) -> None:
        while True:
            time.sleep(min(1.0, self._timeout / 4))
            began = self._began
            if began is not None and time.monotonic() - began > self._timeout:
                print(
                    f'Env {self._envid}: no answer for {self._timeout:g} s (run.env_timeout).',
                    flush=True,
                )
                os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Let SIGTERM and SIGINT close the environment and end the process well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first = math.inf

    def leave(number: int, frame: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now < first:
            first = now
            sys.exit(0)
        if now - first >= signals.APART:  # else it is the same, sent twice
            os._exit(128 + number)

    with signals.taken(leave):
        yield
