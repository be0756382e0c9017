"""Atari 2600 games, straight on the emulator of ale_py, which brings the ROMs along.

The suites `atari` and `atari100k` differ in their options alone.
"""

import collections
import difflib
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env
from embodied.core.errors import UserError
from embodied.core.wrappers.values import resizer

NAMES = {'james_bond': 'jamesbond'}
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
STICKY = 0.25  # probability that a frame repeats the action before
NOOP, FIRE = 0, 1
MODES = {
    'actions': ('all', 'needed'),
    'lives': ('unused', 'discount', 'reset'),
    'aggregate': ('max', 'mean'),
}


class Atari(Env):
    """Observation: image (uint8, size + (3,), or size + (1,) if gray). Action: one of a set.

    repeat: frames per action; an observation combines (`aggregate`: max, mean) the last
    `pooling` of them, and after a reset those of the idle frames, up to `noops` of which follow
    a reset. actions: `all` 18, or those that the game has a use for (`needed`). lives: what a
    lost one is: nothing (`unused`), a terminal step in the middle of the episode (`discount`),
    or a terminal end (`reset`). autostart: press fire after a reset and a lost life, where fire
    is needed. An episode ends without being terminal after `length` frames of actions.
    """

    def __init__(
        self,
        task: str,
        size: tuple[int, int] = (96, 96),
        repeat: int = 4,
        sticky: bool = True,
        gray: bool = True,
        actions: str = 'all',
        lives: str = 'unused',
        noops: int = 30,
        autostart: bool = False,
        pooling: int = 2,
        aggregate: str = 'max',
        resize: str = 'pillow',
        clip_reward: bool = False,
        length: int = 108000,
        seed: int = 0,
    ):
        for name, value in (('actions', actions), ('lives', lives), ('aggregate', aggregate)):
            if value not in MODES[name]:
                expected = ', '.join(MODES[name])
                raise UserError(f'--env.atari.{name} takes {expected}; found {value!r}.')
        if min(repeat, pooling) < 1 or noops < 0:
            raise UserError('Atari needs repeat and pooling of 1 or more, noops of 0 or more.')
        self._ale = _emulator(task, sticky, seed)
        needed = self._ale.getMinimalActionSet()
        self._actions = self._ale.getLegalActionSet() if actions == 'all' else needed
        self._fire = autostart and FIRE in [x.value for x in needed]
        self._size = tuple(size)
        self._repeat = repeat
        self._gray = gray
        self._lives_mode = lives
        self._noops = noops
        self._aggregate = aggregate
        self._resize = resizer(resize)
        self._clip_reward = clip_reward
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._screens: collections.deque = collections.deque(maxlen=pooling)
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            'image': elements.Space(np.uint8, (*self._size, 1 if self._gray else 3)),
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
            self._reset()
            return self._obs(0.0, is_first=True)
        reward = 0.0
        if self._waiting:
            reward += self._act(FIRE)
        for _ in range(self._repeat):
            if self._ale.game_over():
                break
            reward += self._act(self._actions[int(action['action'])])
            self._frames += 1
        over, lives = self._ale.game_over(), self._ale.lives()
        lost, self._lives = lives < self._lives, lives
        self._waiting = self._fire and lost
        over |= lost and self._lives_mode == 'reset'
        self._done = over or self._frames >= self._length
        return self._obs(reward, over or (lost and self._lives_mode == 'discount'))

    def _reset(self) -> None:
        self._ale.reset_game()
        self._screens.clear()
        self._screens.append(self._ale.getScreenRGB())
        for _ in range(self._rng.integers(self._noops + 1)):
            self._act(NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        self._frames = 0
        self._lives = self._ale.lives()
        self._waiting = self._fire
        self._done = False

    def _act(self, action: Any) -> float:
        reward = self._ale.act(action)
        self._screens.append(self._ale.getScreenRGB())
        return reward

    def _obs(self, reward: float, terminal: bool = False, is_first: bool = False) -> dict:
        return {
            'image': self._image(),
            'reward': np.float32(np.sign(reward) if self._clip_reward else reward),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': bool(terminal),
        }

    def _image(self) -> np.ndarray:
        screens = np.stack(self._screens)
        if self._aggregate == 'max':
            image = screens.max(0)
        else:
            image = screens.mean(0).astype(np.uint8)
        image = self._resize(image, self._size)
        if self._gray:
            image = np.rint(image @ LUMA).astype(np.uint8)[..., None]
        return image


def _emulator(task: str, sticky: bool, seed: int) -> Any:
    ale_py = envs.require('ale_py', 'atari')
    roms = envs.require('ale_py.roms', 'atari')
    game = NAMES.get(task, task)
    known = roms.get_all_rom_ids()
    if game not in known:
        close = difflib.get_close_matches(game, known, n=3) or ['pong', 'breakout']
        raise UserError(
            f'Unknown game {task!r} in --task; expected a name such as {", ".join(close)}.'
        )
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt('random_seed', seed % 2**31)
    ale.setFloat('repeat_action_probability', STICKY if sticky else 0.0)
    ale.loadROM(roms.get_rom_path(game))
    return ale
