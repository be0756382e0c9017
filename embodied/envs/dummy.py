"""Dummy: an instant environment with every kind of observation and action, for tests."""

from typing import Any

import elements
import numpy as np

from embodied.core.base import Env


class Dummy(Env):
    """Episodes of `length` steps whose rewards are learnable from the observation.

    Observations: image (uint8, size + (3,)), vector (7,), token of 256, count, float2d (4, 5),
    int2d (2, 3) of 4. Actions: act_disc of 5 and act_cont (6,) in [-1, 1]. Task `disc` pays 1
    where act_disc is the token modulo 5; task `cont` pays 1 minus the mean distance of act_cont
    to the first six entries of the vector, squashed by tanh.
    """

    def __init__(
        self, task: str, size: tuple[int, int] = (64, 64), length: int = 100, seed: int = 0
    ):
        self._task = task
        self._size = tuple(size)
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._count = length  # so that the first step starts an episode
        self._obs: dict[str, Any] = {}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            'image': elements.Space(np.uint8, (*self._size, 3), 0, 256),
            'vector': elements.Space(np.float32, (7,)),
            'token': elements.Space(np.int32, (), 0, 256),
            'count': elements.Space(np.float32, (), 0, self._length),
            'float2d': elements.Space(np.float32, (4, 5)),
            'int2d': elements.Space(np.int32, (2, 3), 0, 4),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            'act_disc': elements.Space(np.int32, (), 0, 5),
            'act_cont': elements.Space(np.float32, (6,), -1, 1),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._count >= self._length:
            self._count = 0
            reward = 0.0
        else:
            self._count += 1
            reward = self._reward(action)
        done = self._count >= self._length
        self._obs = self._draw()
        return {
            **self._obs,
            'reward': np.float32(reward),
            'is_first': self._count == 0,
            'is_last': done,
            'is_terminal': done,
        }

    def _reward(self, action: dict[str, Any]) -> float:
        if self._task == 'disc':
            return float(action['act_disc'] == self._obs['token'] % 5)
        return 1 - float(np.abs(action['act_cont'] - np.tanh(self._obs['vector'][:6])).mean())

    def _draw(self) -> dict[str, Any]:
        return {
            'image': self._rng.integers(0, 256, (*self._size, 3), np.uint8),
            'vector': self._rng.standard_normal(7).astype(np.float32),
            'token': np.int32(self._rng.integers(0, 256)),
            'count': np.float32(self._count),
            'float2d': self._rng.standard_normal((4, 5)).astype(np.float32),
            'int2d': self._rng.integers(0, 4, (2, 3), np.int32),
        }
