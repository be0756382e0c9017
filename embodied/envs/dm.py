"""dm: any environment with the interface of dm_env, by `module:function` or as an object."""

import importlib
import inspect
from typing import Any

import elements
import numpy as np

from embodied.core import spaces
from embodied.core.base import Env
from embodied.core.errors import UserError, reason

FLAGS = ('reward', 'is_first', 'is_last', 'is_terminal')
CLASSES = 256  # whole numbers with a wider range than this are numbers, not classes
NO_BOUND = 1e9  # bounds from here on mean that there is none
SEEDS = ('seed', 'random_state', 'random')  # names that a factory may give to its seed


def make(task: str, seed: int = 0) -> 'FromDM':
    """Call `function` of `module`, with the seed if it takes one under a usual name."""
    module, colon, name = task.partition(':')
    if not colon:
        raise UserError(f'--task dm_{task} must name a factory as dm_module:function.')
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise UserError(
            f'Cannot find the factory of --task dm_{task}: {reason(e)}. Its package '
            'must be installed.'
        ) from e
    parameters = inspect.signature(factory).parameters
    given = next(({key: seed} for key in SEEDS if key in parameters), {})
    return FromDM(factory(**{k: v % 2**32 for k, v in given.items()}))


class FromDM(Env):
    """A dm_env environment, given as an object, behind our contract.

    Observations keep their names; one that has none is `image` if it is uint8 with three axes,
    else `observation`; an action without a name is `action`. Whole numbers of a range of at
    most 256 become classes that count from 0, others become float32. Arrays without entries
    are left out; observations beside the spec are passed on, for CheckSpaces to name. A last
    step with discount 0 is terminal; one with another discount is a time limit. `squeeze`: take
    a leading axis of one entry off each observation.
    """

    def __init__(self, env: Any, squeeze: bool = False):
        self._env = env
        self._squeeze = squeeze
        self._done = True
        specs = _named(env.observation_spec(), 'observation')
        self._obs_specs = {k: _Spec(k, v, squeeze) for k, v in specs.items() if _size(v)}
        self._declared = {*specs}
        acts = _named(env.action_spec(), 'action')
        self._act_specs = {k: _Spec(k, v, action=True) for k, v in acts.items() if _size(v)}
        self._plain_obs = not hasattr(env.observation_spec(), 'items')
        self._plain_act = not hasattr(env.action_spec(), 'items')
        self._empty = {k: np.zeros(v.shape, v.dtype) for k, v in acts.items() if not _size(v)}
        clash = [x for x in self._obs_specs if x in (*FLAGS, 'reset', *self._act_specs)]
        if clash:
            raise UserError(
                f'Key {clash[0]!r} of this dm_env environment is reserved or names both an '
                'observation and an action.'
            )

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            **{k: v.space for k, v in self._obs_specs.items()},
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            **{k: v.space for k, v in self._act_specs.items()},
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            step = self._env.reset()
        else:
            act = {k: v.decode(action[k]) for k, v in self._act_specs.items()}
            act |= self._empty
            step = self._env.step(*act.values() if self._plain_act else [act])
        self._done = step.last()
        values = step.observation
        if self._plain_obs:
            values = dict.fromkeys(self._obs_specs, values)
        reward = 0.0 if step.reward is None else step.reward
        return {
            **{k: v for k, v in values.items() if k not in self._declared},
            **{k: v.encode(values[k]) for k, v in self._obs_specs.items()},
            'reward': spaces.to_float32("Observation 'reward'", reward),
            'is_first': step.first(),
            'is_last': self._done,
            'is_terminal': self._done and step.discount == 0,
        }

    def close(self) -> None:
        self._env.close()


class _Spec:
    """One array of theirs, and its space of ours."""

    def __init__(self, name: str, spec: Any, squeeze: bool = False, action: bool = False):
        self._dtype = np.dtype(spec.dtype)
        shape = spec.shape[1:] if squeeze and spec.shape[:1] == (1,) else spec.shape
        kind = self._dtype.kind
        if kind not in 'biuf':
            raise UserError(f'{name!r} has values of {self._dtype}; expected numbers.')
        self._low = np.asarray(getattr(spec, 'minimum', -np.inf))
        self._high = np.asarray(getattr(spec, 'maximum', np.inf))
        self._whole = kind in 'iu' and not _is_image(self._dtype, shape)
        if self._whole:
            self._whole, self.space = self._classes(name, shape, action)
        elif kind == 'f' and action:
            low = np.where(self._low <= -NO_BOUND, -np.inf, self._low)
            high = np.where(self._high >= NO_BOUND, np.inf, self._high)
            self.space = elements.Space(np.float32, shape, low, high)
        elif _is_image(self._dtype, shape) and np.isfinite(self._high).all():
            bounds = (np.broadcast_to(x, spec.shape) for x in (self._low, self._high))
            low, high = (x.astype(int).reshape(shape) for x in bounds)
            self.space = elements.Space(self._dtype, shape, low, high + 1)
        else:
            self.space = elements.Space(self._dtype, shape)

    def _classes(self, name: str, shape: tuple, action: bool) -> tuple[bool, Any]:
        """Whether these are classes, and the space."""
        counts = {float(x) for x in np.ravel(self._high.astype(float) - self._low + 1)}
        if max(counts) > CLASSES and not action:
            return False, elements.Space(np.float32, shape)
        if action and (len(counts) > 1 or not np.isfinite(max(counts))):
            raise UserError(
                f'Action {name!r} must be whole numbers of one finite range; found '
                f'{self._low} to {self._high}.'
            )
        return True, elements.Space(np.int32, shape, 0, int(max(counts)))

    def encode(self, value: Any) -> np.ndarray:
        if self._whole:
            value = np.asarray(value) - self._low
        return np.array(value, self.space.dtype).reshape(self.space.shape)

    def decode(self, value: Any) -> np.ndarray:
        if self._whole:
            return np.asarray(value + self._low, self._dtype)
        inside = np.clip(np.asarray(value, np.float64), self._low, self._high)
        return inside.astype(self._dtype)


def _named(spec: Any, name: str) -> dict[str, Any]:
    """Specs by name; UserError for a list of them, one for each of several agents."""
    if hasattr(spec, 'items'):
        return dict(spec)
    if isinstance(spec, (list, tuple)):
        raise UserError(
            f'This environment has {len(spec)} agents, each with its own {name}; expected one.'
        )
    return {'image' if _is_image(spec.dtype, spec.shape) else name: spec}


def _is_image(dtype: Any, shape: tuple) -> bool:
    return dtype == np.uint8 and len(shape) == 3


def _size(spec: Any) -> int:
    return int(np.prod(spec.shape))
