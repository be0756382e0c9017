"""Training in one process: act, remember, learn, step by step."""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

from elements import timer

from .. import logging
from ..core import checkpoint, clocks
from . import start
from .learner import Learner

SLICE = 10  # env steps between two looks at the clocks


def train(
    make_agent: Callable,
    make_replay: Callable,
    make_env: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: Any,
) -> None:
    """Train until run.steps env steps or run.duration seconds; go on where logdir/ckpt ends.

    A step is one call of env.step by the agent, resets included. All envs step together, so
    that a run passes run.steps by fewer steps than there are envs.

    A checkpoint is saved after the first updates, every save_every seconds, and at the end.
    Raises UserError for arguments that do not fit each other or a checkpoint that does not
    load, before the first step.
    """
    start.check(args)
    cp = checkpoint.Checkpoint(pathlib.Path(args.logdir) / 'ckpt', args.keep)
    if args.from_checkpoint and not cp.exists():
        checkpoint.find(args.from_checkpoint)  # a wrong path shows before anything compiles

    with contextlib.closing(make_logger()) as logger:
        replay = make_replay()
        start.check_replay(replay, args)
        agent = make_agent()
        step = logger.step
        learner = Learner(agent, replay, make_stream, args)
        cp.parts.update(step=step, agent=agent, replay=replay, ratio=learner.ratio)
        restore(cp, learner, args)
        logger.rewind(step)
        print(learner.describe(), flush=True)
        if step >= args.steps:
            print(f'Nothing to do: step {int(step):,} of run.steps {args.steps:,.0f}.')
            return
        with contextlib.closing(start.make_driver(make_env, args.envs, args)) as driver:
            loop(agent, replay, driver, learner, logger, cp, args)


def loop(
    agent: Any,
    replay: Any,
    driver: Any,
    learner: Learner,
    logger: logging.Logger,
    cp: checkpoint.Checkpoint,
    args: Any,
) -> None:
    """Step, learn, report, log and save until the end."""
    step = logger.step
    episodes = logging.Episodes(args.episode_timeout)
    usage = logging.Usage(**args.usage)
    rate = logging.Rate()
    report_due = clocks.Every(args.report_every)
    log_due = clocks.Every(args.log_every)
    save_due = clocks.Every(args.save_every)
    logged = None  # step of the last log
    saved = int(step) if cp.exists() or not args.save_every else None
    stop = time.monotonic() + args.duration if args.duration else math.inf

    def on_step(transition, worker):
        step.increment()
        rate.add()
        if ended := episodes.add(transition, worker):
            logger.add(ended)
            logger.write()
        learner(step, ahead=len(driver) - 1 - worker)

    def log():
        logger.add(learner.metrics.result(), prefix='train')
        logger.add(episodes.stats())
        logger.add(replay.stats(), prefix='replay')
        logger.add(usage.stats(), prefix='usage')
        logger.add({'fps/policy': rate.result(), 'fps/train': learner.rate.result()})
        logger.add(logging.timer_stats(), prefix='timer')
        logger.write()
        return int(step)

    policy = timer.section('policy')(functools.partial(agent.policy, mode='train'))
    driver.on_batch(replay.add_batch)
    driver.on_step(on_step)
    driver.reset(agent.init_policy)
    while step < args.steps and time.monotonic() < stop:
        with timer.section('driver'):
            driver(policy, steps=min(SLICE, math.ceil(args.steps - int(step))))
        if learner.ready and report_due():
            with timer.section('report'):
                logger.add(learner.report(), prefix='report')
        if log_due():
            logged = log()
        if save_due() or (learner.updates and saved is None):
            saved = save(cp)
    if logged != step:
        log()
    if saved != step:
        save(cp)


def restore(cp: checkpoint.Checkpoint, learner: Learner, args: Any) -> None:
    """Go on from this run's checkpoint, or else begin with another run's agent, if asked."""
    step, replay = cp.parts['step'], cp.parts['replay']
    if not cp.exists():
        if args.from_checkpoint:
            start.load_agent(
                cp.parts['agent'], args.from_checkpoint, args.from_checkpoint_regex
            )
        replay.load()  # files that were put into its folder
        return
    folder = cp.load()
    print(f'Resumed {folder}: step {int(step):,}, {len(replay):,} replay items', flush=True)
    if args.from_checkpoint:
        print('run.from_checkpoint is not used: this run has a checkpoint of its own')
    if learner.ratio.started and not learner.ready:
        print(
            f'Replay data are missing: {len(replay):,} items; training waits for '
            f'{learner.minimum:,}',
            flush=True,
        )
        learner.ratio.reset()


def save(cp: checkpoint.Checkpoint) -> int:
    """Save a checkpoint and return its step."""
    with timer.section('save'):
        cp.save()
    return int(cp.parts['step'])
