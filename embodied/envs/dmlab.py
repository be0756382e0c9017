"""DMLab-30: levels of DeepMind Lab, seen from inside.

The package deepmind_lab is built by hand, often for another Python: see `run.env_python`.
"""

import functools
import re
import zlib
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env
from embodied.core.errors import UserError, reason

NAMES = {'goals': 'explore_goal_locations_small'}
# Look right and down (pixels per frame), strafe right, move forward, fire, jump, crouch.
ACTIONS = {
    'popart': (
        (0, 0, 0, 1, 0, 0, 0),
        (0, 0, 0, -1, 0, 0, 0),
        (0, 0, -1, 0, 0, 0, 0),
        (0, 0, 1, 0, 0, 0, 0),
        (-10, 0, 0, 0, 0, 0, 0),
        (10, 0, 0, 0, 0, 0, 0),
        (-60, 0, 0, 0, 0, 0, 0),
        (60, 0, 0, 0, 0, 0, 0),
        (0, 10, 0, 0, 0, 0, 0),
        (0, -10, 0, 0, 0, 0, 0),
        (-10, 0, 0, 1, 0, 0, 0),
        (10, 0, 0, 1, 0, 0, 0),
        (-60, 0, 0, 1, 0, 0, 0),
        (60, 0, 0, 1, 0, 0, 0),
        (0, 0, 0, 0, 1, 0, 0),
    ),
    'impala': (
        (0, 0, 0, 1, 0, 0, 0),
        (0, 0, 0, -1, 0, 0, 0),
        (0, 0, -1, 0, 0, 0, 0),
        (0, 0, 1, 0, 0, 0, 0),
        (-20, 0, 0, 0, 0, 0, 0),
        (20, 0, 0, 0, 0, 0, 0),
        (-20, 0, 0, 1, 0, 0, 0),
        (20, 0, 0, 1, 0, 0, 0),
        (0, 0, 0, 0, 1, 0, 0),
    ),
}
# What DMLab-30 sets for the levels that agents are not trained on.
HELD_OUT = {'allowHoldOutLevels': 'true', 'mixerSeed': str(0x600D5EED)}
WORDS, WIDTH = 32, 32  # of an instruction, and of the embedding of a word
BUCKETS = 65536


class DMLab(Env):
    """Tasks: names of DMLab-30 levels.

    Observation: image (uint8, size + (3,)), and where the level gives instructions `instr`
    (float32, 1024): its first 32 words, each a fixed random vector. Action: one of 15
    (`popart`) or 9 (`impala`), for `repeat` frames. split: train, or eval for levels that are
    held out. With `use_seed` the seed decides on all episodes. The end of an episode, which is
    always a time limit or a finished task, is terminal if `episodic`.
    """

    def __init__(
        self,
        task: str,
        size: tuple[int, int] = (64, 64),
        repeat: int = 4,
        episodic: bool = True,
        use_seed: bool = True,
        actions: str = 'popart',
        split: str = 'train',
        seed: int = 0,
    ):
        if actions not in ACTIONS or split not in ('train', 'eval') or repeat < 1:
            raise UserError(
                'DMLab takes actions popart or impala, split train or eval, and repeat of 1 or '
                f'more; found {actions!r}, {split!r}, {repeat}.'
            )
        self._actions = np.array(ACTIONS[actions], np.intc)
        self._size = tuple(size)
        self._repeat = repeat
        self._episodic = episodic
        self._rng = np.random.default_rng(seed) if use_seed else None
        self._instructed = task.startswith('language_')
        self._env = self._load(task, split)
        self._last: dict[str, Any] = {}
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        instr = {'instr': elements.Space(np.float32, (WORDS * WIDTH,))}
        return {
            'image': elements.Space(np.uint8, (*self._size, 3)),
            **(instr if self._instructed else {}),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            'action': elements.Space(np.int32, (), 0, len(self._actions)),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            if self._rng is None:
                self._env.reset()
            else:
                self._env.reset(seed=int(self._rng.integers(2**31)))
            self._done = False
            return self._obs(0.0, is_first=True)
        row = self._actions[int(action['action'])]
        reward = self._env.step(row, num_steps=self._repeat)
        self._done = not self._env.is_running()
        return self._obs(reward)

    def close(self) -> None:
        self._env.close()

    def _obs(self, reward: float, is_first: bool = False) -> dict[str, Any]:
        if not self._done:  # there is nothing to observe after the end: the last one stays
            seen = self._env.observations()
            self._last = {'image': np.array(seen['RGB_INTERLEAVED'])}
            if self._instructed:
                self._last['instr'] = embed(seen['INSTR'])
        return {
            **self._last,
            'reward': np.float32(reward),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': self._done and self._episodic,
        }

    def _load(self, task: str, split: str) -> Any:
        lab = envs.require('deepmind_lab', 'dmlab')
        level = NAMES.get(task, task)
        if split == 'eval':
            level = re.sub('_train$', '_test', level)
        height, width = self._size
        config = {'height': str(height), 'width': str(width), 'logLevel': 'WARN'}
        config |= HELD_OUT if split == 'eval' else {}
        names = ['RGB_INTERLEAVED'] + ['INSTR'] * self._instructed
        try:
            return lab.Lab(f'contributed/dmlab30/{level}', names, config=config)
        except RuntimeError as e:
            raise UserError(
                f'DeepMind Lab cannot make --task dmlab_{task}: {reason(e)}.'
            ) from e


def embed(text: str) -> np.ndarray:
    """Vectors of the first words and signs of a text, end to end; zeros after the last."""
    tokens = re.findall(r'\w+|[^\w\s]+', text.lower())[:WORDS]
    indices = [zlib.crc32(token.encode()) % BUCKETS for token in tokens]
    vectors = np.zeros((WORDS, WIDTH), np.float32)
    vectors[: len(indices)] = _table()[indices]
    return vectors.reshape(-1)


@functools.cache
def _table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((BUCKETS, WIDTH), np.float32)
