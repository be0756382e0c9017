"""An environment that shows what the test puts in, and keeps what it is given."""

from typing import Any

import elements
import numpy as np

import embodied

FLAGS = {
    'reward': elements.Space(np.float32),
    'is_first': elements.Space(bool),
    'is_last': elements.Space(bool),
    'is_terminal': elements.Space(bool),
}
RESET = elements.Space(bool)


class EchoEnv(embodied.Env):
    """Returns what the test puts into `obs`, and keeps the actions it got."""

    def __init__(self, obs_space: dict, act_space: dict, obs: dict):
        self._obs_space = {**obs_space, **FLAGS}
        self._act_space = {**act_space, 'reset': RESET}
        flags = {'reward': np.float32(0), 'is_first': True, 'is_last': False}
        self.obs = {**flags, 'is_terminal': False, **obs}
        self.actions: list[dict[str, Any]] = []

    @property
    def obs_space(self) -> dict:
        return self._obs_space

    @property
    def act_space(self) -> dict:
        return self._act_space

    def step(self, action: dict) -> dict:
        self.actions.append(action)
        return self.obs


def act(**values) -> dict:
    return {**values, 'reset': np.bool_(False)}
