"""bsuite: small experiments that each test one ability, 468 settings in 23 groups."""

import difflib
import inspect
from typing import Any
from urllib import error as urls

import numpy as np

from embodied import envs, wrappers
from embodied.core.base import Env
from embodied.core.errors import UserError, reason
from embodied.envs.dm import FromDM


def make(task: str, seed: int = 0) -> Env:
    """Build NAME/INDEX, or NAME for the index 0.

    The seed is that of what the experiment draws while it is played; what makes it this
    setting and no other stays. Time limits are terminal, since bsuite says discount 0. An
    observation with two axes becomes a vector.
    """
    bsuite = envs.require('bsuite.bsuite', 'bsuite')
    sweep = envs.require('bsuite.sweep', 'bsuite')
    name, _, index = task.partition('/')
    setting = f'{name}/{index or 0}'
    if setting not in sweep.SETTINGS:
        names = sorted({x.partition('/')[0] for x in sweep.SETTINGS})
        close = difflib.get_close_matches(name, names, n=3)
        count = sum(x.partition('/')[0] == name for x in sweep.SETTINGS)
        hint = f'{name}/0 to {name}/{count - 1}' if count else ', '.join(close or names)
        raise UserError(f'Unknown setting in --task bsuite_{task}; expected {hint}.')
    load = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[name]
    kwargs = dict(sweep.SETTINGS[setting])
    seed %= 2**32
    if 'seed' in inspect.signature(load).parameters:
        kwargs['seed'] = seed
    return wrappers.FlattenTwoDimObs(FromDM(_load(load, kwargs, task, seed)))


def _load(load: Any, kwargs: dict, task: str, seed: int) -> Any:
    try:
        env = load(**kwargs)
    except (urls.URLError, ConnectionError) as e:
        raise UserError(
            f'--task bsuite_{task} downloads MNIST, and cannot: {reason(e)}. Its four '
            'files may also be put into the folder mnist under /tmp by hand.'
        ) from e
    if task.startswith('deep_sea_stochastic'):
        env._rng = np.random.RandomState(seed)  # takes no seed, and would use the system's
    return env
