"""Gymnasium: environments by id, or a user's own environment object."""

import difflib
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env
from embodied.core.errors import UserError
from embodied.envs import gymspaces

RESERVED = ('reward', 'is_first', 'is_last', 'is_terminal', 'reset', 'stepid', 'consec')


def make(task: str, seed: int = 0) -> 'FromGym':
    """Build the environment with this id, or `module:id` to import a module first."""
    gymnasium = envs.require('gymnasium', 'gym')
    try:
        env = gymnasium.make(task, disable_env_checker=True)  # values are checked by our own
    except gymnasium.error.DependencyNotInstalled as e:
        raise UserError(f'--task gym_{task} needs a missing package: {_line(e)}') from e
    except ModuleNotFoundError as e:
        raise UserError(
            f'--task gym_{task} needs a missing module; install its package: {_line(e)}'
        ) from e
    except (gymnasium.error.Error, ImportError) as e:
        close = difflib.get_close_matches(task, list(gymnasium.registry), n=3)
        hint = f' Nearest: {", ".join(close)}.' if close else ''
        raise UserError(f'Cannot make --task gym_{task}: {_line(e)}{hint}') from e
    return FromGym(env, seed)


class FromGym(Env):
    """A Gymnasium environment, given as an object, behind our contract.

    A plain observation is `image` if it is uint8 with three axes, else `vector`; a plain
    action is `action`; the entries of a Tuple at the top are obs/0, obs/1, … and action/0,
    action/1, …. See gymspaces for nested spaces. terminated becomes is_terminal and is_last,
    truncated is_last alone. The seed goes into the first reset.
    """

    def __init__(self, env: Any, seed: int = 0):
        self._env = env
        self._seed: int | None = seed
        self._done = True
        self._obs = gymspaces.codec(env.observation_space, _obs_name(env.observation_space))
        self._act = gymspaces.codec(env.action_space, 'action', split=True)
        taken = (*RESERVED, *self._act.spaces)
        clash = [x for x in self._obs.spaces if x in taken]
        clash += [x for x in self._act.spaces if x in RESERVED]
        if clash:
            raise UserError(
                f'Key {clash[0]!r} of this Gymnasium environment is reserved or names both an '
                'observation and an action; rename it with a wrapper.'
            )

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            **self._obs.spaces,
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {**self._act.spaces, 'reset': elements.Space(bool)}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            self._done = False
            obs, _ = self._env.reset(seed=self._seed)
            self._seed = None  # later episodes go on from the generator of the first
            return self._result(obs, 0.0, is_first=True)
        obs, reward, terminated, truncated, _ = self._env.step(self._act.decode(action))
        self._done = bool(terminated or truncated)
        return self._result(obs, reward, is_terminal=bool(terminated))

    def close(self) -> None:
        self._env.close()

    def _result(
        self, obs: Any, reward: Any, is_first: bool = False, is_terminal: bool = False
    ) -> dict[str, Any]:
        return {
            **self._obs.encode(obs),
            'reward': np.float32(np.asarray(reward).item()),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': is_terminal,
        }


def _obs_name(space: Any) -> str:
    if isinstance(getattr(space, 'spaces', None), tuple):
        return 'obs'
    return 'image' if gymspaces.is_image(space) else 'vector'


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
