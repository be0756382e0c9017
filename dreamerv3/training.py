"""Training from Python, on an environment of one's own: `dreamerv3.train(make_env, logdir)`."""

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import elements

import embodied
from dreamerv3 import config as configuration
from dreamerv3 import main, makers
from embodied import UserError, envs
from embodied.core import workers

ANY = 'gym_Env'  # the task until the name of the environment is known


def train(
    make_env: Any, logdir: str | os.PathLike, configs: str | Iterable[str] = (), **flags: Any
) -> pathlib.Path:
    """Train until run.steps, as the command line does, and return the folder of the run.

    make_env: a function (or class) that makes a new Gymnasium environment or `embodied.Env` at
    each call; one that needs an argument gets the index of the environment. It is called once
    more than there are environments (with run.agent_process twice, with run.env_python only
    there). Or an environment itself, which then is the only one of train or eval_only, and
    stays in this process and open. Or a name: an id of Gymnasium or a task, such as
    `CartPole-v1` or `crafter_reward`. configs: blocks. flags: keys of configs.yaml, nested,
    such as `run={'steps': 1e5}, seed=1, env={'gym': {'info': 'is_success|cost'}}`.

    With processes (`run.debug False`, parallel scripts) a script calls this below the line
    `if __name__ == '__main__':`, since each of them imports the script.

    An existing run in the folder goes on. Raises UserError for what does not fit.
    """
    workers.leave_if_imported()
    flags = configuration.flatten(flags)
    names = configs.replace(',', ' ').split() if isinstance(configs, str) else configs
    single, task = False, ANY
    if isinstance(make_env, str):
        task = _named(make_env)
    elif single := makers.is_env(make_env):
        flags = {'run.envs': 1, 'run.debug': True, 'run.env_restarts': 0, **flags}
    # The suite gym takes any name; what is needed to find the own one is in the config.
    config = configuration.load(names, {'task': task, **flags, 'logdir': os.fspath(logdir)})
    config = configuration.finish(config)
    if isinstance(make_env, str):
        main.start(config)
        return pathlib.Path(config.logdir)
    if single:
        _check_one_is_enough(config)
    with contextlib.ExitStack() as stack:
        if config.run.env_python:
            make: Callable = functools.partial(makers.make, make_env, config)
            name = getattr(make_env, '__name__', 'Env')
        else:
            make = makers.Maker(make_env, config)
            stack.callback(make.close)
            name = make.name()
        task = f'gym_{name}' if config.task == ANY else config.task
        main.start(config.update(task=task), make)
    return pathlib.Path(config.logdir)


def wrap(env: Any, seed: int = 0, info: str = '') -> embodied.Env:
    """A Gymnasium environment or an `embodied.Env` as run loops and agents take it.

    The seed goes into the first reset of a Gymnasium environment. info: which entries of its
    `info` come along under `log/`, as env.gym.info.
    """
    return embodied.wrappers.wrap(makers.adapt(env, seed, info))


def _named(name: str) -> str:
    """The task that a name means: one of a suite, or an id of Gymnasium."""
    return name if name.partition('_')[0] in envs.SUITES else f'gym_{name}'


def _check_one_is_enough(config: elements.Config) -> None:
    """Raise UserError where a run needs more than one environment that was given itself."""
    run, why = config.run, ''
    if config.script not in ('train', 'eval_only'):
        why = f'the script {config.script} needs more than one'
    elif run.envs > 1:
        why = f'run.envs is {run.envs}'
    elif not run.debug or run.env_python:
        why = 'a process of its own (run.debug False, run.env_python) makes its own'
    elif run.env_restarts:
        why = 'one that fails is made anew (run.env_restarts)'
    if why:
        raise UserError(
            f'One environment serves one environment of one script, but {why}: give a function '
            'that makes environments.'
        )
