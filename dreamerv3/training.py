"""Training from Python, on an environment of one's own: `dreamerv3.train(make_env, logdir)`."""

import functools
import inspect
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import elements

import embodied
from dreamerv3 import config as configuration
from dreamerv3 import environments, main
from embodied import UserError, envs
from embodied.core import seeds, workers
from embodied.core.guest import Guest
from embodied.core.waiting import Wait


def train(
    make_env: Any, logdir: str | os.PathLike, configs: str | Iterable[str] = (), **flags: Any
) -> pathlib.Path:
    """Train until run.steps, as the command line does, and return the folder of the run.

    make_env: a function (or class) without arguments that makes a Gymnasium environment or an
    `embodied.Env`; it is called once more than there are environments. Or an environment
    itself, which then is the only one and stays in this process and open. Or a name: an id of
    Gymnasium or a task, such as `CartPole-v1` or `crafter_reward`. configs: blocks.
    flags: keys of configs.yaml, nested, such as `run={'steps': 1e5}, seed=1`.

    With processes (`run.debug False`, parallel scripts) a script calls this below the line
    `if __name__ == '__main__':`, since each of them imports the script.

    An existing run in the folder goes on. Raises UserError for what does not fit.
    """
    workers.leave_if_imported()
    flags = configuration.flatten(flags)
    single = not callable(make_env) and not isinstance(make_env, str)
    if single:
        flags = {'run.envs': 1, 'run.debug': True, **flags}
    task = _named(make_env) if isinstance(make_env, str) else _task(make_env, single)
    names = configs.replace(',', ' ').split() if isinstance(configs, str) else configs
    config = configuration.load(names, {'task': task, **flags, 'logdir': os.fspath(logdir)})
    config = configuration.finish(config)
    if isinstance(make_env, str):
        main.start(config)
        return pathlib.Path(config.logdir)
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
    if not single:
        seeds.seed_globals(seed)
    env = _adapt(make_env if single else _call(make_env), seed)
    env = embodied.wrappers.wrap(env, config.run.strict_spaces)
    return seeds.SeedGlobals(_Open(env) if single else env, seed)


class _Open(embodied.wrappers.Wrapper):
    """Leaves it to the user to close an environment that the user made."""

    def close(self) -> None:
        pass


def _adapt(env: Any, seed: int) -> embodied.Env:
    _check(env)
    if isinstance(env, embodied.Env):
        return env
    from embodied.envs.gym import FromGym

    return FromGym(env, seed)


def _check(env: Any) -> None:
    """Raise UserError for what is no environment."""
    known = hasattr(env, 'observation_space') and hasattr(env, 'action_space')
    if not known and not isinstance(env, embodied.Env):
        raise UserError(
            f'Expected a Gymnasium environment or an embodied.Env, found {type(env).__name__}.'
        )


def _call(make_env: Any) -> Any:
    """What the function or class makes. Raises UserError if it needs arguments."""
    name = getattr(make_env, '__name__', type(make_env).__name__)
    try:
        inspect.signature(make_env).bind()
    except TypeError as e:
        raise UserError(
            f'{name} is called without arguments, but: {e}. Give a function that fills them '
            f'in, such as lambda: {name}(...).'
        ) from e
    except ValueError:  # of a class that does not say its arguments
        pass
    return make_env()


def _named(name: str) -> str:
    """The task that a name means: one of a suite, or an id of Gymnasium."""
    return name if name.partition('_')[0] in envs.SUITES else f'gym_{name}'


def _task(make_env: Any, single: bool) -> str:
    """A name for the config; one of the suite gym, which takes any name and has no options."""
    with Wait('the first environment to be made, for its name'):
        env = make_env if single else Guest()(_call, make_env)
    spec = getattr(env, 'spec', None)
    name = spec.id if spec else type(getattr(env, 'unwrapped', env)).__name__
    if not single:
        _check(env)
        workers.close(env, f'the first environment, a {name},')
    return f'gym_{name}'
