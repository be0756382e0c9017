"""Evaluation of a trained agent: no replay, no learning."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import logging
from ..core import clocks, output, signals
from ..core.errors import UserError
from ..core.guest import Guest
from . import lock, start
from .quota import Quota
from .training import SLICE, play


def eval_only(
    make_agent: Callable,
    make_env: Callable,
    make_logger: Callable,
    args: Any,
    ready: Callable[[], Any] | None = None,
) -> None:
    """Run the agent of run.from_checkpoint for run.steps env steps or run.episodes episodes.

    Loads the agent and nothing else, and prints mean, deviation and number of its scores.
    Signals end it early. ready(): called before the first step, once nothing can be refused any
    more. Raises UserError if there is no checkpoint, if the logdir is that of a training run,
    whose metrics this would replace, and at the end if there are fewer episodes than
    run.episodes.
    """
    start.check(args)
    start.find_agent(args)
    start.check_untrained(args)
    with output.guarded(), signals.Stop() as stop, lock.held(args.logdir):
        agent = Guest()(make_agent)
        start.load_agent(agent, args)
        envs = min(args.envs, args.episodes or args.envs)
        with contextlib.closing(make_logger()) as logger:
            with contextlib.closing(start.make_driver(make_env, envs, args)) as driver:
                if ready:
                    ready()
                logger.rewind(logger.step)  # lines of an earlier evaluation in this folder
                stop.begin()
                scores = loop(agent, driver, logger, args, stop)
            print(describe(scores, int(logger.step)), flush=True)
    if not stop.requested:
        check_count(len(scores), args)


def loop(
    agent: Any, driver: Any, logger: logging.Logger, args: Any, stop: signals.Stop
) -> list[float]:
    """Step until the end and return the scores."""
    step = logger.step
    episodes = logging.Episodes(args.episode_timeout)
    usage = logging.Usage(**args.usage)
    rate = logging.Rate()
    log_due = clocks.Every(args.log_every)
    logged = None  # step of the last log
    quota = Quota(args.episodes, len(driver))

    def on_step(transition, worker):
        step.increment()
        rate.add()
        logger.watch(transition, worker)
        ended = episodes.add(transition, worker)
        if ended and quota.add(worker, ended['episode/score']):
            logger.add(ended)
            logger.write()

    def log():
        logger.add(episodes.stats())
        logger.add(usage.stats(), prefix='usage')
        logger.add({'fps/policy': rate.result()})
        logger.write()
        return int(step)

    driver.on_step(on_step)
    driver.reset(agent.init_policy)
    policy = functools.partial(agent.policy, mode='eval')
    over = lambda: quota.full or stop.requested
    while step < args.steps and not over():
        play(driver, policy, step, min(int(step) + SLICE, args.steps), over)
        logger.progress(args.steps, episodes=len(quota.scores), wanted=args.episodes)
        if log_due():
            logged = log()
    if logged != step:
        log()
    return quota.scores


def check_count(found: int, args: Any) -> None:
    """Raise UserError if fewer episodes than asked for have ended."""
    if found < args.episodes:
        raise UserError(
            f'Played {found} of --run.episodes {args.episodes} to their end; raise --run.steps '
            f'{args.steps:,.0f}.'
        )


def describe(scores: list[float], steps: int) -> str:
    """One line: mean, deviation (of the population) and number of episodes."""
    if not scores:
        return f'No episode ended within {steps:,} steps.'
    mean, deviation = np.mean(scores), np.std(scores)
    return f'Score: mean {mean:.6g}, deviation {deviation:.6g}, {len(scores)} episodes'
