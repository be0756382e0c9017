"""Doubles that all tests share: a counter environment and an agent without JAX."""

import os
import pathlib
import signal
import time
from typing import Any

import elements
import numpy as np

import embodied
from embodied.core import spaces


class CounterEnv(embodied.Env):
    """Counts its steps and shows all that it was given.

    obs: `step` (index in the episode, 0 at is_first), `episode` (index, from 0), `env`,
    `last` (the action that led here; the one that came with a reset too), and the flags.
    reward: 1 per step, 0 at is_first; so an episode scores `length` - 1. An episode is
    `length` observations long and ends for real, or with is_last alone if `terminal` is
    False. With `image` there is also a uint8 `image` (8, 8, 3) filled with step % 256.
    `log/step` repeats the step.
    """

    def __init__(
        self, env: int = 0, length: int = 10, terminal: bool = True, image: bool = False
    ):
        self.env = env
        self.length = length
        self.terminal = terminal
        self.image = image
        self.step_index = -1
        self.episode = -1
        self.done = True
        self.closed = False

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        image = {'image': elements.Space(np.uint8, (8, 8, 3))} if self.image else {}
        return {
            'step': elements.Space(np.int32),
            'episode': elements.Space(np.int32),
            'env': elements.Space(np.int32),
            'last': elements.Space(np.int32, (), 0, 5),
            **image,
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
            'log/step': elements.Space(np.float32),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {'action': elements.Space(np.int32, (), 0, 5), 'reset': elements.Space(bool)}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self.done:
            self.step_index, self.episode = 0, self.episode + 1
        else:
            self.step_index += 1
        self.done = self.step_index + 1 >= self.length
        image = np.full((8, 8, 3), self.step_index % 256, np.uint8)
        return {
            'step': np.int32(self.step_index),
            'episode': np.int32(self.episode),
            'env': np.int32(self.env),
            'last': np.int32(action['action']),
            **({'image': image} if self.image else {}),
            'reward': np.float32(self.step_index > 0),
            'is_first': np.bool_(self.step_index == 0),
            'is_last': np.bool_(self.done),
            'is_terminal': np.bool_(self.done and self.terminal),
            'log/step': np.float32(self.step_index),
        }

    def close(self) -> None:
        self.closed = True


class FaultyEnv(CounterEnv):
    """Fails at the step number `at` of its life (0 is the first).

    fault: 'raise' an error, 'hang' for ever, 'kill' its own process, or a number that it
    shows as reward. `marker`: a file that the first failure makes; while it is there, nothing
    fails, so that a restarted environment goes on.
    """

    def __init__(self, env: int = 0, *, fault: Any, at: int, marker: str = '', **kwargs: Any):
        super().__init__(env, **kwargs)
        self.fault, self.at, self.marker = fault, at, pathlib.Path(marker)
        self.life = 0

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        obs, self.life = super().step(action), self.life + 1
        if self.life <= self.at or self.marker.is_file():
            return obs
        if self.marker.name:
            self.marker.touch()
        if self.fault == 'hang':
            time.sleep(1e6)
        elif self.fault == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == 'raise':
            raise ZeroDivisionError(f'fault at {self.at}')
        return {**obs, 'reward': np.float32(self.fault)}


class DoubleAgent(embodied.Agent):
    """An agent that learns nothing and counts everything, on numpy alone.

    Its policy counts the steps of each episode in the carry and stores that count as the
    replay key `latent` (uint16, shape (2,)); actions are drawn from the seed and the number
    of policy calls. `train` counts updates, adds the update number to a small weight, and
    writes latents back that are the update number, so that a replay shows who wrote last.
    """

    def __init__(self, obs_space: dict, act_space: dict, config: Any = None, seed: int = 0):
        super().__init__(
            {k: v for k, v in obs_space.items() if not k.startswith('log/')},
            {k: v for k, v in act_space.items() if k != 'reset'},
            config,
        )
        self.seed = seed
        self.weight = np.zeros(3, np.float32)
        self.updates = 0
        self.reports = 0
        self.actions = 0
        self.consec: list[int] = []  # of each train batch that had the key

    def init_policy(self, batch: int) -> np.ndarray:
        return np.zeros(batch, np.int32)

    def init_train(self, batch: int) -> np.ndarray:
        return np.zeros(batch, np.int32)

    def init_report(self, batch: int) -> np.ndarray:
        return np.zeros(batch, np.int32)

    def policy(self, carry: np.ndarray, obs: dict, mode: str = 'train') -> tuple:
        assert mode in ('train', 'eval')
        assert obs.keys() == self.obs_space.keys()
        carry = np.where(obs['is_first'], 0, carry + 1).astype(np.int32)
        rng = np.random.default_rng([self.seed, self.actions])
        act = {
            key: np.stack([spaces.sample(space, rng) for _ in carry])
            for key, space in self.act_space.items()
        }
        latent = np.repeat(carry[:, None], 2, 1).astype(np.uint16)
        self.actions += 1
        return carry, act, {'latent': latent}

    def train(self, carry: np.ndarray, data: dict) -> tuple:
        batch, length = data['is_first'].shape
        assert len(carry) == batch
        self.updates += 1
        self.weight += self.updates
        if 'consec' in data:
            self.consec.append(int(data['consec'][0, 0]))
        latent = np.full((batch, length, 2), self.updates % 2**16, np.uint16)
        out = {'replay': {'stepid': data['stepid'], 'latent': latent}}
        return carry + 1, out, self._metrics(data)

    def report(self, carry: np.ndarray, data: dict) -> tuple:
        self.reports += 1
        return carry + 1, self._metrics(data)

    def stream(self, stream: embodied.Stream) -> embodied.Stream:
        return stream

    def save(self) -> dict:
        return {'weight': self.weight.copy(), 'updates': self.updates, 'actions': self.actions}

    def load(self, data: dict, regex: str | None = None) -> None:
        self.weight = np.array(data['weight'], np.float32)
        self.updates = int(data['updates'])
        self.actions = int(data['actions'])

    def _metrics(self, data: dict) -> dict:
        return {
            'loss/double': np.float32(1 / (1 + self.updates)),
            'data/reward': data['reward'].mean(),
            'opt/updates': np.int32(self.updates),
        }
