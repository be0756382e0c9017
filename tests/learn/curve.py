"""Trains on a game and returns its learning curve."""

import functools
import json
import pathlib

import numpy as np

import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories


def train(
    folder: pathlib.Path, flags: dict, make_env=None, blocks=()
) -> list[tuple[int, float]]:
    """Run `train` with the flags over the blocks; returns (step, score) of each episode.

    make_env(index) -> Env replaces the environment of the config.
    """
    config = configs.load(blocks, {'logdir': str(folder), 'logger.outputs': ['jsonl'], **flags})
    bind = lambda fn: functools.partial(fn, config)
    if make_env:
        factory = lambda index: embodied.wrappers.wrap(make_env(index))
        agent = lambda: factories.make_agent(config, factory(0))
    else:
        factory, agent = bind(factories.make_env), bind(factories.make_agent)
    embodied.run.train(
        agent, bind(factories.make_replay), factory, bind(factories.make_stream),
        bind(factories.make_logger), factories.run_args(config),
    )  # fmt: skip
    rows = map(json.loads, (folder / 'scores.jsonl').read_text().splitlines())
    return [(row['step'], row['episode/score']) for row in rows]


def thousands(scores: list[tuple[int, float]], size: int = 1000) -> list[float]:
    """Mean score of the episodes that end in each `size` env steps."""
    bins: dict[int, list[float]] = {}
    for step, score in scores:
        bins.setdefault((step - 1) // size, []).append(score)
    return [round(float(np.mean(bins[i])), 3) for i in sorted(bins)]
