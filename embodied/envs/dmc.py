"""dmc: the DeepMind Control Suite, its manipulation tasks, and the rodent."""

import difflib
from typing import Any

from embodied import envs, wrappers
from embodied.core.base import Env
from embodied.core.errors import UserError
from embodied.envs import rendering
from embodied.envs.dm import FromDM

# The camera that shows most; 0 elsewhere.
CAMERAS = {'quadruped': 2, 'rodent': 4}
NAMES = {'cup': 'ball_in_cup'}


def make(
    task: str,
    size: tuple[int, int] = (64, 64),
    repeat: int = 1,
    proprio: bool = True,
    image: bool = True,
    camera: int = -1,
    seed: int = 0,
) -> Env:
    """Build DOMAIN_TASK of the suite, manip_TASK, or rodent_TASK.

    proprio: observe what the task itself gives, under its names; image: observe the camera
    (-1: a usual one for the domain) as `image`. Without images nothing is drawn. Time limits
    are not terminal. The tasks of manipulation come with and without the positions of objects
    (`_features`, `_vision`); without a suffix, images decide.
    """
    if not proprio and not image:
        raise UserError('--env.dmc.proprio False --env.dmc.image False leaves nothing to see.')
    rendering.choose('dmc', needed=image)
    envs.require('dm_control', 'dmc')
    domain, _, name = task.partition('_')
    draws = rendering.GlobalDraws(seed)  # the mazes of the rodent and their textures
    if domain == 'manip':
        raw = _manipulation(name, image, seed)
    elif domain == 'rodent':
        with draws:
            raw = _rodent(name, seed)
    else:
        raw = _suite(task, seed)
    env: Env = FromDM(raw, squeeze=domain == 'manip')
    if domain == 'rodent':
        env = rendering.Within(env, draws)
    env = wrappers.ActionRepeat(env, repeat)
    if not proprio:
        env = rendering.Keep(env, lambda key: False)
    if image:
        camera = CAMERAS.get(domain, 0) if camera == -1 else camera
        env = rendering.Camera(env, lambda: raw.physics, size, camera)
    return env


def _suite(task: str, seed: int) -> Any:
    from dm_control import suite

    tasks = {f'{domain}_{name}': (domain, name) for domain, name in suite.ALL_TASKS}
    for short, long in NAMES.items():
        if task.startswith(f'{short}_'):
            task = long + task[len(short) :]
    if task not in tasks:
        raise _unknown(task, [*tasks, 'manip_TASK', 'rodent_TASK'])
    return suite.load(*tasks[task], task_kwargs={'random': seed % 2**32})


def _manipulation(name: str, image: bool, seed: int) -> Any:
    from dm_control import manipulation

    choices = [name, f'{name}_vision', f'{name}_features']
    choices = choices if image else [name, f'{name}_features']
    found = [x for x in choices if x in manipulation.ALL]
    if not found:
        raise _unknown(f'manip_{name}', [f'manip_{x}' for x in manipulation.ALL])
    env = manipulation.load(found[0], seed=seed % 2**32)
    rendering.turn_cameras_off(env)
    return env


def _rodent(name: str, seed: int) -> Any:
    import numpy as np
    from dm_control.locomotion.examples import basic_rodent_2020 as rodents

    tasks = [x.partition('_')[2] for x in vars(rodents) if x.startswith('rodent_')]
    if name not in tasks:
        raise _unknown(f'rodent_{name}', [f'rodent_{x}' for x in tasks])
    random = np.random.RandomState(seed % 2**32)
    env = getattr(rodents, f'rodent_{name}')(random_state=random)
    rendering.turn_cameras_off(env)
    return env


def _unknown(task: str, names: list[str]) -> UserError:
    close = difflib.get_close_matches(task, names, n=3) or names[:5]
    return UserError(
        f'Unknown task in --task dmc_{task}; expected for example '
        f'{", ".join("dmc_" + x for x in close)}.'
    )
