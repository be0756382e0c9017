"""Small games that show whether an agent learns at all."""

import elements
import numpy as np

import embodied

FLAGS = {
    'reward': elements.Space(np.float32),
    'is_first': elements.Space(bool),
    'is_last': elements.Space(bool),
    'is_terminal': elements.Space(bool),
}


class Game(embodied.Env):
    """A game of a fixed number of moves with a vector observation and discrete actions.

    Subclasses give `size`, `actions`, `begin()` -> observation and `move(action)` ->
    (observation, reward, over).
    """

    size = 0
    actions = 0

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.over = True

    @property
    def obs_space(self):
        return {'vector': elements.Space(np.float32, self.size), **FLAGS}

    @property
    def act_space(self):
        return {
            'action': elements.Space(np.int32, (), 0, self.actions),
            'reset': elements.Space(bool),
        }

    def step(self, action):
        first = self.over or bool(action['reset'])
        if first:
            vector, reward, self.over = self.begin(), 0.0, False
        else:
            vector, reward, self.over = self.move(int(action['action']))
        return {
            'vector': np.asarray(vector, np.float32),
            'reward': np.float32(reward),
            'is_first': np.bool_(first),
            'is_last': np.bool_(self.over),
            'is_terminal': np.bool_(self.over),
        }


class Look(Game):
    """Four moves; each is right if it names the symbol shown right now. Chance: 1 of 4."""

    size, actions = 3, 3

    def begin(self):
        self.left = 4
        return self._show()

    def move(self, action):
        reward = float(action == self.symbol)
        self.left -= 1
        return self._show(), reward, self.left == 0

    def _show(self):
        self.symbol = int(self.rng.integers(3))
        return np.eye(3)[self.symbol]


class Remember(Game):
    """The symbol is shown at the start only, and the third move must name it. Chance: half."""

    size, actions = 3, 2

    def begin(self):
        self.moves = 0
        self.symbol = int(self.rng.integers(2))
        return np.eye(3)[self.symbol]

    def move(self, action):
        self.moves += 1
        over = self.moves == 3
        return np.eye(3)[2], float(over and action == self.symbol), over


class Catch(Game):
    """A ball falls a row a step over a 10 x 5 board; the paddle must be below it at the end.

    Score 1 or -1; random play scores about -0.6.
    """

    rows, columns = 10, 5
    size, actions = 50, 3

    def begin(self):
        self.ball = [0, int(self.rng.integers(self.columns))]
        self.paddle = self.columns // 2
        return self._board()

    def move(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.columns - 1))
        self.ball[0] += 1
        over = self.ball[0] == self.rows - 1
        reward = (1 if self.paddle == self.ball[1] else -1) if over else 0
        return self._board(), reward, over

    def _board(self):
        board = np.zeros((self.rows, self.columns), np.float32)
        board[self.ball[0], self.ball[1]] = 1
        board[self.rows - 1, self.paddle] = 1
        return board.reshape(-1)
