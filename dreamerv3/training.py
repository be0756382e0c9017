"""Training from Python, on an environment of one's own: `dreamerv3.train(make_env, logdir)`."""

import functools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import elements

import embodied
from dreamerv3 import config as configuration
from dreamerv3 import environments, main
from embodied import UserError
from embodied.core import seeds, workers
from embodied.core.waiting import Wait


def train(
    make_env: Any, logdir: str | os.PathLike, configs: Iterable[str] = (), **flags: Any
) -> pathlib.Path:
    """Train until run.steps, as the command line does, and return the folder of the run.

    make_env: a function (or class) without arguments that makes a Gymnasium environment or an
    `embodied.Env`; it is called once more than there are environments. Or an environment
    itself, which then is the only one and stays in this process and open. configs: blocks.
    flags: keys of configs.yaml, nested, such as `run={'steps': 1e5}, seed=1`.

    With processes (`run.debug False`, parallel scripts) a script calls this below the line
    `if __name__ == '__main__':`, since each of them imports the script.

    An existing run in the folder goes on. Raises UserError for what does not fit.
    """
    workers.leave_if_imported()
    flags = configuration.flatten(flags)
    single = not callable(make_env)
    if single:
        flags = {'run.envs': 1, 'run.debug': True, **flags}
    task = _task(make_env, single)
    config = configuration.load(configs, {'task': task, **flags, 'logdir': os.fspath(logdir)})
    config = configuration.finish(config)
    if single and (config.run.envs > 1 or not config.run.debug):
        raise UserError(
            'One environment cannot be shared: give a function that makes environments, or '
            'leave run.envs at 1 and run.debug at True.'
        )
    main.start(config, functools.partial(_make, make_env, single, config))
    return pathlib.Path(config.logdir)


def wrap(env: Any, seed: int = 0) -> embodied.Env:
    """A Gymnasium environment or an `embodied.Env` as run loops and agents take it.

    The seed goes into the first reset of a Gymnasium environment.
    """
    return embodied.wrappers.wrap(_adapt(env, seed))


def _make(
    make_env: Any,
    single: bool,
    config: elements.Config,
    index: int,
    step: int = 0,
    attempt: int = 0,
) -> embodied.Env:
    seed = environments.env_seed(config, index, step, attempt)
    if single:
        return seeds.SeedGlobals(_Open(wrap(make_env, seed)), seed)
    seeds.seed_globals(seed)
    return seeds.SeedGlobals(wrap(make_env(), seed), seed)


class _Open(embodied.wrappers.Wrapper):
    """Leaves it to the user to close an environment that the user made."""

    def close(self) -> None:
        pass


def _adapt(env: Any, seed: int) -> embodied.Env:
    if isinstance(env, embodied.Env):
        return env
    if not hasattr(env, 'observation_space') or not hasattr(env, 'action_space'):
        raise UserError(
            f'Expected a Gymnasium environment or an embodied.Env, found {type(env).__name__}.'
        )
    from embodied.envs.gym import FromGym

    return FromGym(env, seed)


def _task(make_env: Any, single: bool) -> str:
    """A name for the config; one of the suite gym, which takes any name and has no options."""
    with Wait('the first environment to be made, for its name'):
        env = make_env if single else make_env()
    spec = getattr(env, 'spec', None)
    name = spec.id if spec else type(getattr(env, 'unwrapped', env)).__name__
    if not single:
        workers.close(env, f'the first environment, a {name},')
    return f'gym_{name}'
