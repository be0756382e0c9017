"""The process of the agent: it acts for all environments and learns from the replay server."""

import collections
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import elements

from ... import logging
from ...checkpoint import checkpoint
from ...core import clocks, output, rpc, signals
from ...core.errors import NotFinite
from ...core.guest import Guest
from ...core.waiting import Wait
from .. import lock, start
from ..saver import Saver
from . import common
from .actor import Actor, dismiss
from .learner import Learner, Reports

DRAIN = 1.0  # seconds for the replay to answer at the end
UNHEARD = 12  # messages to a logger that does not answer; its client has room for more


def parallel_agent(
    make_agent: Callable | bytes,
    args: Any,
    ready: Callable[[], Any] | None = None,
    stop: signals.Stop | None = None,
    failed: Callable[[], bool] = lambda: False,
) -> None:
    """Serve run.actor_addr and learn, until run.steps env steps or run.duration seconds.

    Parameters and steps are saved under logdir/ckpt/agent every run.save_every seconds and at
    the end. ready(): called once nothing can be refused any more. stop: of a process that
    does more than this; failed(): whether that ends the run. Raises UserError for a checkpoint
    that does not fit; NotFinite for numbers that are not finite.
    """
    common.check_address(args, *common.ADDRESSES)
    start.check(args)
    with contextlib.ExitStack() as stack:
        stack.enter_context(output.guarded())
        stop = stop or stack.enter_context(signals.Stop())
        stack.enter_context(lock.held(common.folder(args, 'agent')))
        cp = checkpoint.Checkpoint(common.folder(args, 'agent'), args.keep)
        if args.from_checkpoint and not cp.exists():
            start.find_agent(args)  # a wrong path shows before anything compiles
        agent = Guest()(common.factory(make_agent))
        step = elements.Counter()
        cp.parts.update(step=step, agent=agent)
        restore(cp, args)
        if ready:
            ready()
        if step >= args.steps:
            print(f'Nothing to do: step {int(step):,} of run.steps {args.steps:,.0f}.')
            if args.remote_envs:
                dismiss(agent.act_space, args)
            return
        run = Run(agent, step, cp, stop, failed, args)
        with contextlib.closing(run):
            run()
        if stop.requested:
            print(f'Stopped and saved at step {int(step):,}; the same command goes on.')


def restore(cp: checkpoint.Checkpoint, args: Any) -> None:
    """Go on from this run's checkpoint, or else begin with another run's agent, if asked."""
    if cp.exists():
        print(f'Resumed {cp.load()}: step {int(cp.parts["step"]):,}', flush=True)
        if args.from_checkpoint:
            print('run.from_checkpoint is not used: this run has a checkpoint of its own')
    elif args.from_checkpoint:
        start.load_agent(cp.parts['agent'], args, args.from_checkpoint_regex)


class Run:
    """One agent at work: the actor in threads of its own, the learner in this one."""

    def __init__(
        self, agent: Any, step: Any, cp: checkpoint.Checkpoint, stop: signals.Stop,
        failed: Callable[[], bool], args: Any,
    ):  # fmt: skip
        self._step, self._stop, self._failed, self._args = step, stop, failed, args
        self._usage = logging.Usage(**args.usage)
        self._clients = {
            'actor_replay': rpc.Client(args.replay_addr, 'actor', server='replay'),
            'actor_logger': rpc.Client(args.logger_addr, 'actor', server='logger'),
            'learner_replay': rpc.Client(args.replay_addr, 'learner', server='replay'),
            'learner_logger': rpc.Client(args.logger_addr, 'learner', server='logger'),
        }
        self._actor = Actor(
            agent, step, self._clients['actor_replay'], self._clients['actor_logger'], args
        )
        self._server = rpc.Server(args.actor_addr, 'actor', args.bind)
        self._server.bind('ident', self._actor.ident)
        self._server.defer('act', self._actor.act, once=True)
        replay = self._clients['learner_replay']
        self._learner = Learner(agent, replay, self._tick, args)
        self._reports = Reports(agent, replay, args)
        self._saver = Saver(cp, args)
        self._log_due = clocks.Every(args.log_every)
        self._report_due = clocks.Every(args.report_every)
        self._unheard: collections.deque[Any] = collections.deque()  # by the logger

    def __call__(self) -> None:
        """Act and learn until the end, and save."""
        # An agent that was killed has saved fewer steps than the logger has seen.
        self._catch_up()
        self._end = time.monotonic() + (self._args.duration or math.inf)
        self._server.start()
        self._actor.start()
        self._stop.begin()
        try:
            while True:
                self._learner()
                self._tick()
        except common.Over:
            pass
        except NotFinite:
            raise
        except BaseException:
            self._saver.rescue(self._learner.updates)
            raise
        try:
            self._drain()
            # Those here end with the run; those elsewhere may be needed by one that goes on.
            self._actor.close(tell=self._args.remote_envs and not self._stop.requested)
            self._log()
        finally:  # also where the logger has answered with an error
            self._saver.finish()

    def close(self) -> None:
        """Close what is connected."""
        self._server.close()
        for client in self._clients.values():
            client.close()

    def _tick(self) -> None:
        """What is due between two updates. Raises Over when the run is to end."""
        self._server.check()
        if self._actor.failure:
            raise self._actor.failure
        over = self._step >= self._args.steps or time.monotonic() >= self._end
        if over or self._stop.requested or self._failed():
            raise common.Over
        if self._report_due() and self._learner.updates:
            self._saver.before_report(self._learner.updates)
            self._reports.begin()
        for mode, metrics in self._reports.result().items():
            self._logger_add(metrics, mode)
        if self._log_due():
            self._log()
        self._saver(self._learner.updates)

    def _catch_up(self) -> None:
        """Take over the count of the logger, which is waited for."""
        future = self._clients['learner_logger'].call('step')
        with Wait(f'the logger at {self._args.logger_addr} to say its step'):
            while not future.done():
                with contextlib.suppress(rpc.Timeout):
                    future.result(common.PAUSE)
                if self._stop.requested or self._failed():
                    return
        known = future.result()['step']
        self._step.load(max(int(known), int(self._step)))

    def _drain(self) -> None:
        """Let the replay take what waits for its limiter, since nobody learns any more."""
        with (
            # The others may be full.
            rpc.Client(self._args.replay_addr, 'drain', server='replay') as client,
            contextlib.suppress(rpc.Timeout, rpc.RemoteError),
        ):
            client.call('drain').result(DRAIN)

    def _log(self) -> None:
        """Send what was counted since the last time."""
        self._logger_add(self._learner.metrics.result(), 'train')
        rates = {'policy': self._actor.rate.result(), 'train': self._learner.rate.result()}
        self._logger_add(rates, 'fps')
        self._logger_add(logging.timer_stats(), 'timer')
        self._logger_add(self._usage.stats(), 'usage/agent')
        self._logger_add(self._server.stats(), 'server/actor')
        for name, client in self._clients.items():
            self._logger_add(client.stats(), f'client/{name}')

    def _logger_add(self, metrics: dict, prefix: str) -> None:
        """Send metrics; while the logger is away, most are lost and nothing waits for it."""
        while self._unheard and self._unheard[0].done():
            self._unheard.popleft().result()
        if metrics and len(self._unheard) < UNHEARD:
            message = {'metrics': metrics, 'prefix': prefix}
            self._unheard.append(self._clients['learner_logger'].call('add', message))
