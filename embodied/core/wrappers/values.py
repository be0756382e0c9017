"""Wrappers that change what is observed or how actions are given."""

from collections.abc import Callable
from typing import Any

import elements
import numpy as np

from .. import spaces
from ..base import Env, Spaces, Step
from ..errors import UserError
from .base import Wrapper

Resize = Callable[[np.ndarray, tuple[int, int]], np.ndarray]


class ObsWrapper(Wrapper):
    """Pass everything on, but for an observation space that is decided when it is made.

    >>> env = embodied.envs.make('dummy_disc')
    >>> ObsWrapper(env, {'count': env.obs_space['count']}).obs_space.keys()
    dict_keys(['count'])
    """

    def __init__(self, env: Env, obs_space: Spaces):
        super().__init__(env)
        self._obs_space = obs_space

    @property
    def obs_space(self) -> Spaces:
        return self._obs_space


class ResizeImage(ObsWrapper):
    """Bring all images (uint8, height x width x channels) to `size`, (height, width).

    method: pillow (bilinear) or opencv (area).

    >>> env = ResizeImage(embodied.envs.make('dummy_disc'), (32, 48))
    >>> env.obs_space['image'].shape
    (32, 48, 3)
    """

    def __init__(self, env: Env, size: tuple[int, int], method: str = 'pillow'):
        height, width = size
        self._size = (height, width)
        keys = [
            k for k, v in env.obs_space.items() if v.dtype == np.uint8 and len(v.shape) == 3
        ]
        self._keys = [k for k in keys if env.obs_space[k].shape[:2] != self._size]
        self._resize = resizer(method) if self._keys else None
        resized = {k: _resized(env.obs_space[k], self._size) for k in self._keys}
        super().__init__(env, {**env.obs_space, **resized})

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        if self._resize is None:
            return obs
        return {**obs, **{k: self._resize(obs[k], self._size) for k in self._keys}}


def _resized(space: Any, size: tuple[int, int]) -> elements.Space:
    """The space of an image in another size, with the range of each channel."""
    low, high = np.asarray(space.low).min((0, 1)), np.asarray(space.high).max((0, 1))
    return elements.Space(np.uint8, (*size, space.shape[2]), low, high)


def resizer(method: str) -> Resize:
    """Return fn(image, (height, width)) for uint8 images with a channel axis.

    >>> resizer('pillow')(np.zeros((64, 64, 3), np.uint8), (32, 48)).shape
    (32, 48, 3)
    """
    if method == 'pillow':
        return _resize_pillow
    if method != 'opencv':
        raise UserError(f'Images are resized by pillow or opencv; found {method!r}.')
    try:
        import cv2
    except ImportError as e:
        raise UserError(
            'Resizing images by opencv needs its package: pip install opencv-python-headless; '
            'or take pillow (--env.SUITE.resize pillow).'
        ) from e

    def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        if image.shape[:2] == size:
            return image
        result = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        return result.reshape(*size, image.shape[2])  # it drops a single channel

    return resize


def _resize_pillow(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image

    if image.shape[:2] == size:
        return image
    plain = image[..., 0] if image.shape[2] == 1 else image
    result = Image.fromarray(plain).resize(size[::-1], Image.Resampling.BILINEAR)
    return np.asarray(result).reshape(*size, image.shape[2])


class FlattenTwoDimObs(ObsWrapper):
    """Make vectors of the observations with two axes.

    >>> env = FlattenTwoDimObs(embodied.envs.make('dummy_disc'))
    >>> env.obs_space['float2d'].shape  # (4, 5) before
    (20,)
    """

    def __init__(self, env: Env):
        self._keys = [k for k, v in env.obs_space.items() if len(v.shape) == 2]
        flat = {}
        for key in self._keys:
            space = env.obs_space[key]
            low, high = np.asarray(space.low).reshape(-1), np.asarray(space.high).reshape(-1)
            flat[key] = elements.Space(space.dtype, low.shape, low, high)
        super().__init__(env, {**env.obs_space, **flat})

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        return {**obs, **{key: np.asarray(obs[key]).reshape(-1) for key in self._keys}}


class AddObs(ObsWrapper):
    """Add the same value to every observation, such as the index of a task.

    >>> space = elements.Space(np.int32, (), 0, 10)
    >>> env = AddObs(embodied.envs.make('dummy_disc'), 'task', np.int32(3), space)
    >>> act = {k: np.zeros(s.shape, s.dtype) for k, s in env.act_space.items()}
    >>> int(env.step(act)['task'])
    3
    """

    def __init__(self, env: Env, key: str, value: Any, space: Any):
        if key in env.obs_space:
            raise UserError(f'The environment already has an observation {key!r}.')
        spaces.check(f'Observation {key!r}', space, value)
        self._added = {key: np.asarray(value)}
        super().__init__(env, {**env.obs_space, key: space})

    def step(self, action: Step) -> Step:
        return {**self.env.step(action), **self._added}


class BackwardReturn(ObsWrapper):
    """Add `bwreturn`: the episode's rewards so far, each step discounted by 1 - 1/horizon.

    >>> env = BackwardReturn(embodied.envs.make('dummy_disc'), horizon=100)
    >>> env.obs_space['bwreturn'].shape
    ()
    """

    def __init__(self, env: Env, horizon: float):
        super().__init__(env, {**env.obs_space, 'bwreturn': elements.Space(np.float32)})
        if horizon < 1:
            raise UserError(f'A horizon has 1 step or more, not {horizon}.')
        self._discount = 1 - 1 / horizon
        self._sum = 0.0

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        past = 0.0 if obs['is_first'] else self._discount * self._sum
        self._sum = past + float(obs['reward'])
        return {**obs, 'bwreturn': np.float32(self._sum)}


class DiscretizeAction(Wrapper):
    """Turn each element of a float action into one of `bins` values between its bounds.

    >>> class Heater(embodied.Env):
    ...     act_space = {'degrees': elements.Space(np.float32, (), 10, 30)}
    ...     def step(self, action):
    ...         return {'degrees': float(action['degrees'])}
    >>> DiscretizeAction(Heater(), key='degrees', bins=5).step({'degrees': np.int32(1)})
    {'degrees': 15.0}
    """

    def __init__(self, env: Env, key: str = 'action', bins: int = 5):
        super().__init__(env)
        space = env.act_space[key]
        low, high = spaces.bounds(space)
        if space.dtype.kind != 'f' or not (np.isfinite(low) & np.isfinite(high)).all():
            raise UserError(
                f'Action {key!r} must be a float between finite bounds to be cut into bins; '
                f'found {spaces.describe(space)}.'
            )
        if bins < 2:
            raise UserError(f'An action is cut into 2 bins or more, not {bins}.')
        self._key = key
        self._values = np.linspace(low, high, bins, dtype=space.dtype)  # (bins, ...)
        self._space = elements.Space(np.int32, space.shape, 0, bins)

    @property
    def act_space(self) -> Spaces:
        return {**self.env.act_space, self._key: self._space}

    def step(self, action: Step) -> Step:
        index = np.asarray(action[self._key])[None]
        value = np.take_along_axis(self._values, index, 0)[0]
        return self.env.step({**action, self._key: value})
