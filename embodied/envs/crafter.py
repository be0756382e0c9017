"""Crafter: a 2-D world of survival with 22 achievements, seen as images."""

import collections
import json
import pathlib
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env


class Crafter(Env):
    """Tasks `reward`, and `noreward`, where the agent gets 0 and the log alone the reward.

    Observation: image (uint8, size + (3,)). Action: one of 17. log/reward is the reward of the
    step. With `logs` log/achievement_NAME is how often the episode has unlocked it so far, so
    that its maximum over the episode is the count. An episode that reaches the limit of 10,000
    steps ends without being terminal; only death is. With a `folder`, stats.jsonl in it gets a
    line per episode: length, reward and achievement_NAME, as the package's own recorder writes.
    """

    def __init__(
        self,
        task: str,
        size: tuple[int, int] = (64, 64),
        logs: bool = False,
        folder: str = '',
        seed: int = 0,
    ):
        crafter = envs.require('crafter', 'crafter')
        # The package counts width first, and its spaces disagree with its images otherwise.
        self._env = crafter.Env(size=tuple(size)[::-1], reward=task == 'reward', seed=seed)
        self._size = tuple(size)
        names = crafter.constants.achievements if logs else ()
        self._logs = {f'log/achievement_{name}': name for name in names}
        self._folder = folder
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            'image': elements.Space(np.uint8, (*self._size, 3), 0, 256),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
            'log/reward': elements.Space(np.float32),
            **{key: elements.Space(np.float32) for key in self._logs},
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            'action': elements.Space(np.int32, (), 0, self._env.action_space.n),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            self._done = False
            image = self._env.reset()
            _order_chunks(self._env._world)
            self._steps, self._score = 0, 0.0
            return self._obs(image, 0.0, {}, is_first=True)
        image, reward, self._done, info = self._env.step(int(action['action']))
        self._steps, self._score = self._steps + 1, self._score + info['reward']
        if self._done and self._folder:
            self._record(info['achievements'])
        return self._obs(image, reward, info)

    def _record(self, achievements: dict[str, int]) -> None:
        counts = {f'achievement_{name}': count for name, count in achievements.items()}
        line = {'length': self._steps, 'reward': round(self._score, 1), **counts}
        folder = pathlib.Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / 'stats.jsonl', 'a') as file:
            file.write(json.dumps(line) + '\n')

    def _obs(self, image, reward, info, is_first: bool = False) -> dict[str, Any]:
        counts = info.get('achievements', {})
        return {
            'image': image,
            'reward': np.float32(reward),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': self._done and info['discount'] == 0,
            'log/reward': np.float32(info.get('reward', 0.0)),
            **{key: np.float32(counts.get(name, 0)) for key, name in self._logs.items()},
        }


class _OrderedSet(dict):
    """The part of set's interface that the world uses, in order of insertion."""

    def add(self, value: Any) -> None:
        self[value] = None

    def remove(self, value: Any) -> None:
        del self[value]


def _order_chunks(world: Any) -> None:
    """Keep each chunk's objects in an ordered set.

    The package keeps them in a set and draws from it by position, so that the same seed gives
    different episodes in different processes: the order of a set follows memory addresses.
    """
    chunks: Any = collections.defaultdict(_OrderedSet)
    for key in world.chunks:
        chunks[key] = _OrderedSet()
    for thing in world.objects:
        chunks[world.chunk_key(thing.pos)].add(thing)
    world._chunks = chunks
