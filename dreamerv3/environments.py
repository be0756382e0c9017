"""The environments of a run, built from the config alone.

Also imported by interpreters of `run.env_python`, with an older Python and without JAX.
"""

import pathlib
from typing import Any

import elements
import numpy as np

from embodied import envs, wrappers
from embodied.core import seeds
from embodied.core.base import Env
from embodied.core.workers import accepts

BEYOND = 2**20  # from here on eval_only counts environments, for their seeds


def make_env(config: elements.Config, index: int, step: int = 0, attempt: int = 0) -> Env:
    """Build environment number `index` of the task, wrapped for the agent.

    Those of evaluations come after the run.envs of training. Equal arguments give equal
    environments, see `env_seed`; the global generators of `random` and `numpy.random` are
    seeded for it as well.
    """
    options = {**env_options(config), **_own_options(config, index)}
    seed = env_seed(config, index, step, attempt)
    seeds.seed_globals(seed)
    env = envs.make(config.task, seed=seed, **options)
    return seeds.SeedGlobals(wrappers.wrap(env, config.run.strict_spaces), seed)


def shifted(make_env: Any, first: int, index: int, step: int = 0, attempt: int = 0) -> Env:
    """Evaluation environment number `index`: the first ones are those of training."""
    options = {'step': step, 'attempt': attempt}
    options = {k: v for k, v in options.items() if v and accepts(make_env, k)}
    return make_env(first + index, **options)


def env_seed(config: elements.Config, index: int, step: int = 0, attempt: int = 0) -> int:
    """The seed of environment number `index`.

    step: at which the run went on, 0 for a new one; attempt: how often the environment was
    restarted since. Both change the seed, or it would begin with the same episodes again.
    eval_only has seeds of its own, or it would begin with the episodes of training, however
    many environments that had.
    """
    index += BEYOND if config.script == 'eval_only' else 0
    parts = [config.seed, index, *([step, attempt] if step or attempt else [])]
    return int(np.random.SeedSequence(parts).generate_state(1)[0] >> 1)


def env_options(config: elements.Config) -> dict[str, Any]:
    """The section of the task's suite; a suite without options has none."""
    suite, _ = envs.find(config.task)
    return dict(config.env[suite]) if suite in config.env else {}


def _own_options(config: elements.Config, index: int) -> dict[str, Any]:
    """What differs between the environments of a run, beside their seeds."""
    suite, _ = envs.find(config.task)
    if suite == 'crafter' and config.env.crafter.logs:
        return {'folder': str(pathlib.Path(config.logdir) / 'crafter' / f'env{index}')}
    if suite == 'dmlab' and (index >= config.run.envs or config.script == 'eval_only'):
        return {'split': 'eval'}
    return {}
