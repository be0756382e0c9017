"""Evaluation of a trained agent: no replay, no learning."""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import logging
from ..core import checkpoint, clocks
from . import start

SLICE = 10  # env steps between two looks at the clocks


def eval_only(
    make_agent: Callable, make_env: Callable, make_logger: Callable, args: Any
) -> None:
    """Run the agent of run.from_checkpoint for run.steps env steps or run.episodes episodes.

    Loads the agent and nothing else, and prints mean, deviation and number of its scores.
    run.episodes are dealt out to the envs beforehand: to take those that end first would
    prefer short ones. Raises UserError if there is no checkpoint.
    """
    checkpoint.find(args.from_checkpoint)
    agent = make_agent()
    start.load_agent(agent, args.from_checkpoint)
    envs = min(args.envs, args.episodes or args.envs)
    with contextlib.closing(make_logger()) as logger:
        logger.rewind(logger.step)  # lines of an earlier evaluation in this folder
        with contextlib.closing(start.make_driver(make_env, envs, args)) as driver:
            scores = loop(agent, driver, logger, args)
        print(describe(scores, int(logger.step)), flush=True)


def loop(agent: Any, driver: Any, logger: logging.Logger, args: Any) -> list[float]:
    """Step until the end and return the scores."""
    step = logger.step
    episodes = logging.Episodes(args.episode_timeout)
    usage = logging.Usage(**args.usage)
    rate = logging.Rate()
    log_due = clocks.Every(args.log_every)
    logged = None  # step of the last log
    share, rest = divmod(args.episodes, len(driver))
    scores: list[list[float]] = [[] for _ in range(len(driver))]

    def on_step(transition, worker):
        step.increment()
        rate.add()
        ended = episodes.add(transition, worker)
        if ended and not full(worker):
            scores[worker].append(ended['episode/score'])
            logger.add(ended)
            logger.write()

    def full(worker):
        return args.episodes and len(scores[worker]) >= share + (worker < rest)

    def log():
        logger.add(episodes.stats())
        logger.add(usage.stats(), prefix='usage')
        logger.add({'fps/policy': rate.result()})
        logger.write()
        return int(step)

    driver.on_step(on_step)
    driver.reset(agent.init_policy)
    while step < args.steps and not all(map(full, range(len(driver)))):
        steps = min(SLICE, math.ceil(args.steps - int(step)))
        driver(functools.partial(agent.policy, mode='eval'), steps=steps)
        if log_due():
            logged = log()
    if logged != step:
        log()
    return [score for own in scores for score in own]


def describe(scores: list[float], steps: int) -> str:
    """One line: mean, deviation (of the population) and number of episodes."""
    if not scores:
        return f'No episode ended within {steps:,} steps.'
    mean, deviation = np.mean(scores), np.std(scores)
    return f'Score: mean {mean:.6g}, deviation {deviation:.6g}, {len(scores)} episodes'
