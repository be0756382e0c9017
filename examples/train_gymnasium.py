"""Trains on a Gymnasium environment of your own; arguments: FOLDER STEPS BLOCK..."""

import sys

import gymnasium

import dreamerv3


class Echo(gymnasium.Env):  # shows a digit and pays for naming it, 20 times
    observation_space = action_space = gymnasium.spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.digit = 0, self.np_random.integers(4)
        return self.digit, {}

    def step(self, action):
        reward = float(action == self.digit)
        self.time, self.digit = self.time + 1, self.np_random.integers(4)
        return self.digit, reward, False, self.time == 20, {}


if __name__ == '__main__':
    dreamerv3.train(Echo, sys.argv[1], sys.argv[3:], run={'steps': float(sys.argv[2])})
