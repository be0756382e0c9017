"""An agent that acts at random and learns nothing: a baseline, and a test of environments."""

from typing import Any

import numpy as np

from . import spaces
from .base import Agent, Spaces, Step, Stream
from .errors import UserError


class RandomAgent(Agent):
    """Draw every action uniformly from its space (normal where a float has no bounds).

    Draws depend on the seed and on the number of policy calls, which is all there is to save.

    >>> agent = RandomAgent({}, {'move': elements.Space(np.int32, (), 0, 4)}, seed=0)
    >>> _, act, _ = agent.policy(agent.init_policy(2), {'is_first': np.ones(2, bool)})
    >>> act['move'].shape, set(act['move'].tolist()) <= {0, 1, 2, 3}
    ((2,), True)
    """

    def __init__(self, obs_space: Spaces, act_space: Spaces, seed: int = 0):
        super().__init__(obs_space, {k: v for k, v in act_space.items() if k != 'reset'})
        self._seed = seed
        self._calls = 0

    def init_policy(self, batch: int) -> tuple:
        return ()

    def init_train(self, batch: int) -> tuple:
        return ()

    def init_report(self, batch: int) -> tuple:
        return ()

    def policy(self, carry: Any, obs: Step, mode: str = 'train') -> tuple[Any, Step, Step]:
        rng = np.random.default_rng([self._seed, self._calls])
        self._calls += 1
        count = len(obs['is_first'])
        act = {
            key: np.stack([spaces.sample(space, rng) for _ in range(count)])
            for key, space in self.act_space.items()
        }
        return carry, act, {}

    def train(self, carry: Any, data: Step) -> tuple[Any, dict, dict]:
        return carry, {}, {}

    def report(self, carry: Any, data: Step) -> tuple[Any, dict]:
        return carry, {}

    def stream(self, stream: Stream) -> Stream:
        return stream

    def save(self) -> dict:
        return {'calls': self._calls}

    def load(self, data: dict, regex: str | None = None) -> None:
        if 'calls' not in data:
            raise UserError(
                'The checkpoint is of an agent that learns; expected one of a random agent. '
                'Choose another --logdir or leave out --random_agent'
            )
        self._calls = int(data['calls'])
