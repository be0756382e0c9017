"""Minecraft: collecting, climbing, or the way to a diamond, on MineRL.

The package minerl is installed by hand, for an older Python: see `run.env_python`.
"""

import copy
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env
from embodied.envs import minecraftrules as rules

PITCH = 60.0  # degrees, up and down
HOLD_ATTACK, HOLD_JUMP = 30, 10  # steps that a key stays down


class Minecraft(Env):
    """Tasks `wood` (1 for every log), `climb` (change of height), `diamond` (1 the first time
    in an episode for each of 12 steps on the way); all add 0.01 times the change of health.

    Observations: image (uint8, size + (3,)), inventory, its greatest values in the episode
    (inventory_max), equipped (one-hot), all of them over `items`, and health, hunger and breath
    as shares. Action: one of 12, or 25 for the diamond. Where blocks do not break faster
    (`break_speed` 1) the attack key stays down for 30 steps; jump does so for 10. Looking is
    limited to 60 degrees up and down. Death is terminal, `length` steps and a lost connection
    are not. log/inventory/NAME counts some items, with `logs` all that pay.
    """

    def __init__(
        self,
        task: str,
        size: tuple[int, int] = (64, 64),
        break_speed: float = 100.0,
        logs: bool = False,
        length: int = 36000,
        seed: int = 0,
    ):
        envs.require('minerl', 'minecraft')
        from embodied.envs import minecraftspec

        self._env = minecraftspec.make(tuple(size), break_speed, task == 'climb')
        self._items = [x for x in minecraftspec.items() if x != 'log2']
        self._actions = list(rules.actions(task).values())
        self._reward = rules.Reward(task)
        self._size = tuple(size)
        self._length = length
        self._logged = rules.MILESTONES if logs else rules.LOGGED
        self._holds = {
            'jump': HOLD_JUMP,
            **({'attack': HOLD_ATTACK} if break_speed == 1 else {}),
        }
        self._rng = np.random.default_rng(seed)
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        count = len(self._items)
        return {
            'image': elements.Space(np.uint8, (*self._size, 3)),
            'inventory': elements.Space(np.float32, (count,), 0),
            'inventory_max': elements.Space(np.float32, (count,), 0),
            'equipped': elements.Space(np.float32, (count,), 0, 1),
            'health': elements.Space(np.float32),
            'hunger': elements.Space(np.float32),
            'breath': elements.Space(np.float32),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
            **{f'log/inventory/{x}': elements.Space(np.float32) for x in self._logged},
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            'action': elements.Space(np.int32, (), 0, len(self._actions)),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            return self._reset()
        self._steps += 1
        chosen = self._press(self._actions[int(action['action'])])
        seen, _, ended, info = self._env.step(chosen)
        lost = 'error' in info  # what is seen then is drawn at random
        timed_out = bool(info.get('TimeLimit.truncated', False))
        self._done = bool(ended) or self._steps >= self._length
        terminal = bool(ended) and not lost and not timed_out
        return self._obs(self._seen if lost else seen, is_terminal=terminal)

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> dict[str, Any]:
        self._env.seed(int(self._rng.integers(2**31)))  # holds for one episode
        self._steps, self._pitch = 0, 0.0
        self._held = dict.fromkeys(self._holds, 0)
        self._most = np.zeros(len(self._items), np.float32)
        self._done = False
        return self._obs(self._env.reset(), is_first=True)

    def _press(self, change: dict[str, Any]) -> dict[str, Any]:
        """The whole action of a chosen change to doing nothing, with keys that stay down."""
        action = {**copy.deepcopy(rules.NOOP), **copy.deepcopy(change)}
        for key, steps in self._holds.items():
            if action[key]:
                self._held[key] = steps
            if self._held[key]:
                self._held[key] -= 1
                action[key] = 1
        pitch, yaw = action['camera']
        if abs(self._pitch + pitch) > PITCH:
            pitch = 0
        self._pitch += pitch
        action['camera'] = np.array([pitch, yaw], np.float32)
        return action

    def _obs(self, seen: dict, is_first: bool = False, is_terminal: bool = False) -> dict:
        self._seen = seen
        counts = {name: float(value) for name, value in seen['inventory'].items()}
        counts['log'] = counts.get('log', 0.0) + counts.pop('log2', 0.0)
        inventory = np.array([counts.get(x, 0.0) for x in self._items], np.float32)
        self._most = np.maximum(self._most, inventory)
        held = str(seen['equipped_items']['mainhand']['type'])
        life = seen['life_stats']
        health = float(life['life']) / 20
        height = float(seen['location_stats']['ypos']) if 'location_stats' in seen else 0.0
        return {
            'image': np.array(seen['pov'], np.uint8),
            'inventory': inventory,
            'inventory_max': self._most.copy(),
            'equipped': np.array([x == held for x in self._items], np.float32),
            'health': np.float32(health),
            'hunger': np.float32(float(life['food']) / 20),
            'breath': np.float32(float(life['air']) / 300),
            'reward': np.float32(self._reward(counts, health, height, is_first)),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': is_terminal,
            **{f'log/inventory/{x}': np.float32(counts.get(x, 0)) for x in self._logged},
        }
