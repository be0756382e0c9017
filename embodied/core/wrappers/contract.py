"""Wrappers that every environment gets: actions and observations as the contract says."""

from typing import Any

import elements
import numpy as np

from .. import spaces
from ..base import Env, Spaces, Step
from ..errors import UserError
from .base import Wrapper


class NormalizeAction(Wrapper):
    """Maps [-1, 1] linearly to the bounds of float actions, element by element.

    Elements without two finite bounds stay as they are.
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

    def _scale(
        self, value: np.ndarray, finite: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        value = np.asarray(value)
        share = (value.astype(np.float64) + 1) / 2
        # A weighted mean meets both bounds exactly and does not overflow.
        inside = low * (1 - share) + high * share
        return np.where(finite, inside, value).astype(value.dtype)


class UnifyDtypes(Wrapper):
    """Turns floats into float32 and integers into int32; uint8, bool and text stay.

    Only casts that keep the kind of value are made (a float for an integer space is left for
    CheckSpaces to refuse), and none that would change an integer. Actions are turned back
    into the dtypes of the environment.
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
        return {k: _cast(v, known[k].dtype) if k in known else v for k, v in obs.items()}


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
        cast = value.astype(dtype)
        return cast if np.array_equal(cast, value) else value
    if not np.can_cast(value.dtype, dtype, 'same_kind'):
        return value
    with np.errstate(over='ignore'):  # an overflow becomes inf, which CheckSpaces names
        return value.astype(dtype)


class CheckSpaces(Wrapper):
    """Raises a UserError for a key or value outside of the spaces, in both directions.

    What is under `log/` is only logged: its bounds do not matter, and it needs no space.
    """

    def __init__(self, env: Env):
        super().__init__(env)
        bounded = {k: not k.startswith('log/') for k in env.obs_space}
        self._obs = {k: spaces.Guard(s, bounded[k]) for k, s in env.obs_space.items()}
        self._act = {k: spaces.Guard(s) for k, s in env.act_space.items()}

    def step(self, action: Step) -> Step:
        self._check('Action', self._act, action)
        obs = self.env.step(action)
        known = {k: v for k, v in obs.items() if k in self._obs or not k.startswith('log/')}
        self._check('Observation', self._obs, known)
        return obs

    def _check(self, what: str, guards: dict, values: Step) -> None:
        if values.keys() != guards.keys():
            missing = sorted(guards.keys() - values.keys())
            extra = sorted(values.keys() - guards.keys())
            raise UserError(
                f'{what} lacks the keys {missing} and has {extra} beyond its space.'
            )
        for key, value in values.items():
            guards[key].check(f'{what} {key!r}', value)


class ClipAction(Wrapper):
    """Clips float actions to their bounds."""

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
