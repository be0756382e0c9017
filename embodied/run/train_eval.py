"""Training with an evaluation beside each report, in environments of its own."""

import functools
from collections.abc import Callable
from typing import Any

from .. import logging
from ..core import seeds, signals
from . import start, training
from .learner import average
from .quota import Quota


def train_eval(
    make_agent: Callable,
    make_replay_train: Callable,
    make_replay_eval: Callable,
    make_env_train: Callable,
    make_env_eval: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: Any,
    ready: Callable[[], Any] | None = None,
) -> None:
    """Train as `train` does, and every report_every seconds evaluate as well.

    An evaluation plays eval_eps episodes, which count no steps and go into the eval replay,
    and averages consec_report * report_batches batches of that. All its metrics are eval/….
    """
    make = functools.partial(Evaluation, make_replay_eval, make_env_eval, make_stream)
    training.run(
        make_agent,
        make_replay_train,
        make_env_train,
        make_stream,
        make_logger,
        args,
        ready,
        make,
    )


class Evaluation:
    """Plays episodes with the agent as it is. Its environments exist while it is entered."""

    def __init__(
        self,
        make_replay: Callable,
        make_env: Callable,
        make_stream: Callable,
        agent: Any,
        logger: logging.Logger,
        args: Any,
    ):
        self.replay = make_replay()
        self._make_env = make_env
        self._agent = agent
        self._logger = logger
        self._args = args
        self._stream = iter(make_stream(self.replay, 'eval'))
        self._envs = min(args.eval_envs, args.eval_eps)  # more would play for nothing
        self._apart = seeds.Apart()

    def __enter__(self) -> 'Evaluation':
        if self._envs:
            with self._apart():
                self._driver = start.make_driver(self._make_env, self._envs, self._args)
            self._driver.on_batch(self.replay.add_batch)
            self._driver.on_step(self._on_step)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._envs:
            self._driver.close()

    def __call__(self, stop: signals.Stop) -> None:
        """Play, and add all metrics to the logger; a stop that is requested cuts it short."""
        if self._envs:
            with self._apart():
                self._play(stop)
        if len(self.replay):
            metrics = average(self._agent, self._stream, self._args)
            self._logger.add(metrics, prefix='eval')

    def _play(self, stop: signals.Stop) -> None:
        self._episodes = logging.Episodes(self._args.episode_timeout)
        self._results = logging.Aggregate()
        self._quota = Quota(self._args.eval_eps, self._envs)
        policy = functools.partial(self._agent.policy, mode='eval')
        self._driver.reset(self._agent.init_policy)
        while not self._quota.full and not stop.requested:
            self._driver(policy, steps=1)
        self._logger.add(self._results.result(), prefix='eval')
        self._logger.add(self._episodes.stats(), prefix='eval')

    def _on_step(self, transition: dict, worker: int) -> None:
        self._logger.watch(transition, worker)
        ended = self._episodes.add(transition, worker)
        if ended and self._quota.add(worker, ended['episode/score']):
            self._results.add(ended)
