"""PinPad: a room whose pads are to be stepped on in order, a test of long memory."""

from typing import Any

import elements
import numpy as np

from embodied.core.base import Env
from embodied.envs.pinpadrooms import ROOMS

MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # (x, y) of each action
COLORS = np.array(
    [
        [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0],
        [255, 0, 255], [0, 255, 255], [128, 0, 128], [0, 128, 128],
    ],
    np.uint8,
)  # fmt: skip
WHITE, BLACK, GRAY, CHEER = 255, 0, 192, (223, 255, 223)
CELL = 4  # pixels
COUNTDOWN = 10  # steps between the reward and the next start


class PinPad(Env):
    """Tasks `three` to `eight`, the number of pads.

    Observation: image (uint8, 64 x 64 x 3). Action: 0 to 4, stay, down, up, right, left. The
    room remembers as many of the last pads as there are, without repetitions; where they are
    all pads in order, the reward is 10, and 10 steps later the player starts elsewhere with
    nothing remembered. An episode ends after `length` steps without being terminal.
    """

    def __init__(self, task: str, length: int = 10000, seed: int = 0):
        self._room = np.array([list(row) for row in ROOMS[task]]).T  # by (x, y)
        self._pads = sorted({*self._room.flat} - {'#', ' '})
        self._places = [tuple(x) for x in np.argwhere(self._room != '#')]
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            'image': elements.Space(np.uint8, (64, 64, 3)),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {
            'action': elements.Space(np.int32, (), 0, len(MOVES)),
            'reset': elements.Space(bool),
        }

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            self._steps = self._countdown = 0
            self._start()
            reward = 0.0
        else:
            self._steps += 1
            reward = self._play(int(action['action']))
        self._done = self._steps >= self._length
        return {
            'image': self._render(),
            'reward': np.float32(reward),
            'is_first': self._steps == 0,
            'is_last': self._done,
            'is_terminal': False,
        }

    def _start(self) -> None:
        self._player = self._places[self._rng.integers(len(self._places))]
        self._sequence: list[str] = []

    def _play(self, action: int) -> float:
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                self._start()
        move = MOVES[action]
        place = (self._player[0] + move[0], self._player[1] + move[1])
        if self._room[place] != '#':
            self._player = place
        pad = self._room[self._player]
        if pad != ' ' and self._sequence[-1:] != [pad]:
            self._sequence = [*self._sequence, pad][-len(self._pads) :]
        if self._sequence == self._pads and not self._countdown:
            self._countdown = COUNTDOWN
            return 10.0
        return 0.0

    def _render(self) -> np.ndarray:
        cells = np.full((16, 16, 3), WHITE, np.uint8)  # by (x, y)
        if self._countdown:
            cells[:] = CHEER
        room = cells[:, :14]
        room[self._room == '#'] = GRAY
        for pad in self._pads:
            color = COLORS[int(pad) - 1]
            faint = (color * 0.1 + 0.9 * WHITE).astype(np.uint8)
            room[self._room == pad] = color if self._room[self._player] == pad else faint
        room[self._player] = BLACK
        cells[:, 14:] = GRAY
        for index, pad in enumerate(self._sequence):
            cells[2 * index + 1, 14] = COLORS[int(pad) - 1]
        return cells.transpose(1, 0, 2).repeat(CELL, 0).repeat(CELL, 1)
