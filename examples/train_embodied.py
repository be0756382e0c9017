"""Trains on an `embodied.Env` of your own; arguments: FOLDER STEPS BLOCK..."""

import sys

import elements
import numpy as np

import dreamerv3
import embodied


class Walk(embodied.Env):  # walks on a line and is paid at its right end, within 20 steps
    over = True

    @property
    def obs_space(self):
        return {
            'place': elements.Space(np.float32, (1,)),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self):
        return {'move': elements.Space(np.int32, (), 0, 3), 'reset': elements.Space(bool)}

    def step(self, action):
        if action['reset'] or self.over:  # shows the first observation of an episode
            self.time = self.place = 0
        else:
            self.time += 1
            self.place += int(action['move']) - 1
        there = self.place >= 5
        self.over = there or self.time == 20
        return {
            'place': np.float32([self.place]),
            'reward': np.float32(there),
            'is_first': np.bool_(self.time == 0),
            'is_last': np.bool_(self.over),
            'is_terminal': np.bool_(there),  # nothing comes after it; else time is up
        }


if __name__ == '__main__':
    dreamerv3.train(Walk, sys.argv[1], sys.argv[3:], run={'steps': float(sys.argv[2])})
