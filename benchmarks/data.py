"""Rates of the path from environments into training batches, without an agent.

python benchmarks/data.py [SECONDS per figure]
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from dreamerv3 import config as configs
from dreamerv3 import factories
from embodied import spaces

TASKS = ('dummy_disc', 'crafter_reward', 'gym_CartPole-v1')


def main(seconds: float = 3.0) -> None:
    """Print calls per second of env.step, replay.add and replay.sample for each task."""
    for task in TASKS:
        overrides = {'task': task, 'logdir': '/nowhere', 'replay.online': False}
        config = configs.load(overrides=overrides)
        env, replay = factories.make_env(config, 0), factories.make_replay(config)
        stream = factories.make_stream(config, replay, 'train')
        rng = np.random.default_rng(0)

        def act(env=env, rng=rng):
            drawn = {k: spaces.sample(v, rng) for k, v in env.act_space.items()}
            return {**drawn, 'reset': np.bool_(False)}

        transition = {**act(), **env.step({**act(), 'reset': np.bool_(True)})}
        transition.pop('reset')
        print(task)
        show('env.step', rate(lambda env=env, act=act: env.step(act()), seconds))
        show('replay.add', rate(lambda r=replay, t=transition: r.add(t), seconds))
        batch = config.batch_size * (config.batch_length + config.replay_context)
        show(f'batches of {batch} steps', rate(lambda s=stream: next(s), seconds))


def rate(fn: Callable[[], object], seconds: float) -> float:
    """Calls per second, after a first one that is not counted."""
    fn()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        fn()
        count += 1
    return count / (time.perf_counter() - start)


def show(name: str, figure: float) -> None:
    """Print one line."""
    print(f'  {name:<24} {figure:10,.1f} /s', flush=True)


if __name__ == '__main__':
    main(*map(float, sys.argv[1:]))
