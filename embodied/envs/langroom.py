"""LangRoom: a room in which questions about colours are asked and answered in words."""

from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env

KINDS = {'image': np.uint8, 'text': np.int32, 'reward': np.float32, 'log_image': np.uint8}


class LangRoom(Env):
    """Tasks `run` (which is `answer-only`), `answer-only`, `answer-and-echo` and `echo`.

    Observations: image (uint8, 64 x 64 x 3) of the surroundings, text, the word that is said
    (one of 15). Actions: move (5) and talk (one of the same 15 words). log/image also shows
    the words that were said. An episode ends after 200 steps without being terminal.
    """

    def __init__(self, task: str, length: int = 200, seed: int = 0):
        langroom = envs.require('langroom', 'langroom')
        task = 'answer-only' if task == 'run' else task
        self._env = langroom.LangRoom(task=task, length=length, seed=seed)

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        # Theirs are of a class of their own.
        return {
            _name(key): elements.Space(
                np.int32 if key == 'text' else space.dtype,
                space.shape,
                *((0, space.high) if key == 'text' else ()),
            )
            for key, space in self._env.obs_space.items()
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        spaces = self._env.act_space
        return {
            'move': elements.Space(np.int32, (), 0, spaces['move'].high),
            'talk': elements.Space(np.int32, (), 0, spaces['talk'].high),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        obs = self._env.step({key: int(action[key]) for key in ('move', 'talk', 'reset')})
        return {_name(key): np.asarray(obs[key], KINDS.get(key, bool)) for key in obs}


def _name(key: str) -> str:
    return 'log/image' if key == 'log_image' else key
