"""Gymnasium: environments by id, or a user's own environment object."""

import contextlib
import difflib
import importlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied import envs, wrappers
from embodied.core import spaces
from embodied.core.base import Env
from embodied.core.errors import UserError, reason
from embodied.envs import gymchecks, gyminfo, gymspaces

REFUSED = re.compile(r"reset\(\) got an unexpected keyword argument '(seed|options)'")
RESERVED = ('reward', 'is_first', 'is_last', 'is_terminal', 'reset', 'stepid', 'consec')


def make(task: str, seed: int = 0, info: str = '') -> Env:
    """Build the environment with this id, or `module:id` to import a module first.

    info: names of entries of `info` that are logged, see `FromGym`.

    In an interpreter that has the old package gym and no gymnasium, ids are those of gym. An
    environment with the old interface that is registered with Gymnasium is taken too.
    """
    gym = _package()
    try:
        return FromGym(_make(gym, task), seed, info)
    except gym.error.DependencyNotInstalled as e:
        raise UserError(f'--task gym_{task} needs a missing package: {reason(e)}') from e
    except ModuleNotFoundError as e:
        raise UserError(
            f'--task gym_{task} needs a missing module; install its package: {reason(e)}'
        ) from e
    except (gym.error.Error, ImportError) as e:
        close = difflib.get_close_matches(task, list(getattr(gym, 'registry', ())), n=3)
        hint = f' Nearest: {", ".join(close)}.' if close else ''
        raise UserError(f'Cannot make --task gym_{task}: {reason(e)}{hint}') from e
    except _OldEnv as e:
        env = FromGym(e.env, seed, info)
        return wrappers.TimeLimit(env, e.limit) if e.limit else env


class _OldEnv(Exception):
    """An environment with the old interface, and its limit of steps, which its maker lacks."""

    def __init__(self, env: Any, limit: int | None):
        super().__init__(limit)
        self.env = env
        self.limit = limit


def _package() -> Any:
    try:
        return envs.require('gymnasium', 'gym')
    except UserError:
        with contextlib.suppress(ImportError):
            return importlib.import_module('gym')
        raise


def _make(gym: Any, task: str) -> Any:
    if gym.__name__ == 'gym':
        try:
            return gym.make(task, disable_env_checker=True)
        except TypeError:  # versions before 0.24 hand the argument to the environment
            return gym.make(task)
    try:
        env = gym.make(task, disable_env_checker=True)  # values are checked by our own
    except TypeError as e:
        if 'gymnasium.Env' not in str(e) and 'Gym is incompatible' not in str(e):
            raise
        spec = gym.spec(task)
        creator = spec.entry_point
        if not callable(creator):
            creator = gym.envs.registration.load_env_creator(creator)
        raise _OldEnv(creator(**spec.kwargs), spec.max_episode_steps) from e
    if not _takes(env.unwrapped, 'seed', 'options'):  # Gymnasium's wrappers hand both over
        raise _OldEnv(env.unwrapped, env.spec.max_episode_steps)
    return env


def _takes(env: Any, *names: str) -> bool:
    """Whether `reset` has parameters of these names."""
    try:
        parameters = inspect.signature(env.reset).parameters.values()
    except (TypeError, ValueError):  # some builtins do not say
        return True
    there = {x.name for x in parameters}
    return there.issuperset(names) or any(x.kind == x.VAR_KEYWORD for x in parameters)


class FromGym(Env):
    """An environment of Gymnasium or the old Gym, given as an object, behind our contract.

    A plain observation is `image` if it is uint8 with three axes, else `vector`; a plain
    action is `action`; the entries of a Tuple at the top are obs/0, obs/1, … and action/0,
    action/1, …. See gymspaces for nested spaces. terminated becomes is_terminal and is_last,
    truncated is_last alone. The seed goes into the first reset.

    With the old interface reset returns the observation alone, step four values, of which
    info['TimeLimit.truncated'] tells a time limit, and the seed goes into env.seed.

    Entries of info that begin with `log/`, or whose whole name matches the regular expression
    `info`, come along as observations under `log/` wherever they are there.
    """

    def __init__(self, env: Any, seed: int = 0, info: str = ''):
        gymchecks.check_env(env)
        self._env = env
        self._info = gyminfo.Info(info)
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
            obs, info = self._reset()
            self._seed = None  # later episodes go on from the generator of the first
            return self._result(obs, info, 0.0, is_first=True)
        result = self._env.step(self._act.decode(action))
        obs, reward, terminated, truncated, info = gymchecks.step_result(self._env, result)
        self._done = terminated or truncated
        return self._result(obs, info, reward, is_terminal=terminated)

    def close(self) -> None:
        """Close the environment; an error of it is only told, since nothing is lost by it."""
        try:
            if hasattr(self._env, 'close'):
                self._env.close()
        except Exception as error:
            print(
                f'Warning: {gymchecks.name(self._env)}.close raised {type(error).__name__}: '
                f'{reason(error)}',
                flush=True,
            )

    def _reset(self) -> tuple[Any, Mapping]:
        """Begin an episode and return its first observation and info."""
        if _takes(getattr(self._env, 'unwrapped', self._env), 'seed'):
            options = {'seed': self._seed}
        else:
            options = {}
            if self._seed is not None and hasattr(self._env, 'seed'):
                self._env.seed(self._seed % 2**31)
        try:
            return gymchecks.reset_result(self._env, self._env.reset(**options))
        except TypeError as error:
            if not REFUSED.search(str(error)):
                raise
            raise UserError(
                f'{reason(error)}; expected reset(self, *, seed=None, options=None), since '
                'wrappers of Gymnasium hand both over.'
            ) from error

    def _result(
        self,
        obs: Any,
        info: Mapping,
        reward: float,
        is_first: bool = False,
        is_terminal: bool = False,
    ) -> dict[str, Any]:
        gymchecks.observation(self._env, self._env.observation_space, obs)
        return {
            **self._info(info),
            **self._obs.encode(obs),
            'reward': spaces.to_float32("Observation 'reward'", reward),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': is_terminal,
        }


def _obs_name(space: Any) -> str:
    if isinstance(getattr(space, 'spaces', None), (tuple, list)):
        return 'obs'
    return 'image' if gymspaces.is_image(space) else 'vector'
