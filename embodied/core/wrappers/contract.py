"""Wrappers that every environment gets: actions and observations as the contract says."""

from typing import Any

import elements
import numpy as np

from .. import spaces, warn
from ..base import Env, Spaces, Step
from ..errors import UserError
from .base import Wrapper


class NormalizeAction(Wrapper):
    """Map [-1, 1] linearly to the bounds of float actions, element by element.

    Elements without two finite bounds stay as they are.

    >>> class Heater(embodied.Env):
    ...     act_space = {'degrees': elements.Space(np.float32, (), 10, 30)}
    ...     def step(self, action):
    ...         return {'degrees': float(action['degrees'])}
    >>> NormalizeAction(Heater()).step({'degrees': np.float32(0.5)})
    {'degrees': 25.0}
    """

    def __init__(self, env: Env):
        super().__init__(env)
        self._scales = {}
        self._act_space = dict(env.act_space)
        for key, space in env.act_space.items():
            if space.dtype.kind == 'f':
                low, high = (x.astype(np.float64) for x in spaces.bounds(space))
                finite = np.isfinite(low) & np.isfinite(high)
                self._scales[key] = (
                    finite,
                    np.where(finite, low, 0),
                    np.where(finite, high, 0),
                )
                self._act_space[key] = elements.Space(
                    space.dtype,
                    space.shape,
                    np.where(finite, -1, low),
                    np.where(finite, 1, high),
                )

    @property
    def act_space(self) -> Spaces:
        return self._act_space

    def step(self, action: Step) -> Step:
        scaled = {key: self._scale(action[key], *scale) for key, scale in self._scales.items()}
        return self.env.step({**action, **scaled})

    @np.errstate(all='ignore')  # as it is set where the environment is: that is its own
    def _scale(
        self, value: np.ndarray, finite: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        value = np.asarray(value)
        share = (value.astype(np.float64) + 1) / 2
        # A weighted mean meets both bounds exactly and does not overflow.
        inside = low * (1 - share) + high * share
        return np.where(finite, inside, value).astype(value.dtype)


class UnifyDtypes(Wrapper):
    """Turn floats into float32 and integers into int32; uint8, bool and text stay.

    Only casts that keep the kind of value are made (a float for an integer space is left for
    CheckSpaces to refuse), and none that would change an integer. Actions are turned back
    into the dtypes of the environment.

    >>> class Thermometer(embodied.Env):
    ...     obs_space, act_space = {'degrees': elements.Space(np.float64)}, {}
    ...     def step(self, action):
    ...         return {'degrees': 21.5}
    >>> UnifyDtypes(Thermometer()).step({})['degrees'].dtype
    dtype('float32')
    """

    def __init__(self, env: Env):
        super().__init__(env)
        self._obs_space = {k: _unified_space(s) for k, s in env.obs_space.items()}
        self._act_space = {k: _unified_space(s) for k, s in env.act_space.items()}
        self._inner = {k: s.dtype for k, s in env.act_space.items()}

    @property
    def obs_space(self) -> Spaces:
        return self._obs_space

    @property
    def act_space(self) -> Spaces:
        return self._act_space

    def step(self, action: Step) -> Step:
        action = {k: _cast(v, self._inner[k]) for k, v in action.items()}
        obs = self.env.step(action)
        # A key without a space is left for CheckSpaces to name.
        known = self._obs_space
        return {k: self._unify(k, v) if k in known else v for k, v in obs.items()}

    def _unify(self, key: str, value: Any) -> Any:
        """Cast an observation. Raises UserError for a finite one that float32 cannot hold."""
        value, dtype = np.asarray(value), self._obs_space[key].dtype
        wide = dtype == np.float32 and value.dtype.kind == 'f' and value.itemsize > 4
        if wide and not key.startswith(spaces.LOG):
            return spaces.to_float32(f'Observation {key!r}', value)
        return _cast(value, dtype)


def _unified_space(space: Any) -> Any:
    if space.dtype.kind == 'f':
        with np.errstate(over='ignore'):  # bounds that float32 cannot hold become infinite
            low, high = (bound.astype(np.float32) for bound in spaces.bounds(space))
        return elements.Space(np.float32, space.shape, low, high)
    if space.dtype.kind in 'iu' and space.dtype != np.uint8:
        least, greatest = (bound.astype(np.float64) for bound in spaces.bounds(space))
        info = np.iinfo(np.int32)
        floor = np.clip(least, info.min, info.max).astype(np.int64)
        ceil = np.clip(greatest + 1, info.min, info.max).astype(np.int64)
        return elements.Space(np.int32, space.shape, floor, ceil)
    return space


def _cast(value: Any, dtype: np.dtype) -> Any:
    value = np.asarray(value)
    if value.dtype == dtype or dtype.kind in 'US':
        return value
    if value.dtype.kind in 'iu' and dtype.kind in 'iu':
        return spaces.narrow(value, dtype)
    if not np.can_cast(value.dtype, dtype, 'same_kind'):
        return value
    with np.errstate(all='ignore'):  # an overflow becomes inf, which CheckSpaces names
        return value.astype(dtype)


class CheckSpaces(Wrapper):
    """Raise a UserError for a key or value outside of the spaces, in both directions.

    Two things are said once and do not end the run, unless `strict`: observed floats that are
    finite and beyond their bounds, which are used for nothing, and observations beside the
    declared ones, which are left out. What is under log/ may have any
    value, and needs no space.

    >>> env = CheckSpaces(embodied.envs.make('dummy_disc'))
    >>> act = {k: np.zeros(s.shape, s.dtype) for k, s in env.act_space.items()}
    >>> env.step({**act, 'act_disc': np.int32(5)})
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: Action 'act_disc' is outside of its space: it is 5, ...
    """

    def __init__(self, env: Env, strict: bool = False):
        super().__init__(env)
        spaces.check_names(env.obs_space, env.act_space)
        self._strict = strict
        self._obs = {k: spaces.Guard(s) for k, s in env.obs_space.items()}
        self._act = {k: spaces.Guard(s) for k, s in env.act_space.items()}

    def step(self, action: Step) -> Step:
        self._check_keys('Action', self._act, action)
        for key, value in action.items():
            self._act[key].check(f'Action {key!r}', value)
        obs = self.env.step(action)
        if obs.keys() != self._obs.keys():
            obs = self._declared(obs)
        for key, value in obs.items():
            if key in self._obs:
                self._check_obs(key, value)
        return obs

    def _check_obs(self, key: str, value: Any) -> None:
        guard, name = self._obs[key], f'Observation {key!r}'
        if key.startswith(spaces.LOG):
            guard.check_form(name, value)
        elif beyond := guard.check(name, value, self._strict):
            warn.once(
                f'{name} {spaces.describe(guard.space)}',
                f'{beyond}. Bounds of numbers are used for nothing, so the run goes on '
                '(run.strict_spaces).',
            )

    def _declared(self, obs: Step) -> Step:
        """Leave out observations that have no space, and say so; what is under log/ stays."""
        logged = {k for k in obs if str(k).startswith(spaces.LOG)}
        seen = obs.keys() - (logged - self._obs.keys())
        extra = sorted(map(str, seen - self._obs.keys()))
        if (extra and self._strict) or not self._obs.keys() <= seen:
            self._check_keys('Observation', self._obs, {k: obs[k] for k in seen})
        if extra:
            warn.once(
                f'beside {sorted(self._obs)}',
                f'The environment returns {extra} beside its observation space, which are left '
                'out; declare them for the agent to see (run.strict_spaces).',
            )
        return {k: v for k, v in obs.items() if k in self._obs or k in logged}

    def _check_keys(self, what: str, guards: dict, values: Step) -> None:
        if values.keys() != guards.keys():
            missing = sorted(guards.keys() - values.keys())
            extra = sorted(map(str, values.keys() - guards.keys()))
            raise UserError(
                f'{what} lacks the keys {missing} and has {extra} beyond its space.'
            )


class ClipAction(Wrapper):
    """Clip float actions to their bounds.

    >>> class Heater(embodied.Env):
    ...     act_space = {'degrees': elements.Space(np.float32, (), 10, 30)}
    ...     def step(self, action):
    ...         return {'degrees': float(action['degrees'])}
    >>> ClipAction(Heater()).step({'degrees': np.float32(50)})
    {'degrees': 30.0}
    """

    def __init__(self, env: Env):
        super().__init__(env)
        self._bounds = {
            key: spaces.bounds(space)
            for key, space in env.act_space.items()
            if space.dtype.kind == 'f'
        }

    def step(self, action: Step) -> Step:
        clipped = {key: np.clip(action[key], *bound) for key, bound in self._bounds.items()}
        return self.env.step({**action, **clipped})
