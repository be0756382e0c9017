"""Small environments, as a user's module would have them."""

import sys

import elements
import numpy as np

from tests.doubles import CounterEnv


def timer(seed=None, limit=5, discount=1.0):
    """A dm_env environment that ends after `limit` steps with that discount."""
    return environment(limit, discount, seed)


def pair():
    """Two agents in one environment."""
    env = environment(5, 1.0, 0)
    env.action_spec = lambda: [None, None]
    return env


def environment(limit, discount, seed):
    import dm_env
    from dm_env import specs

    class Timer(dm_env.Environment):
        """Shows a step count in several types, and keeps the actions that it is given."""

        def __init__(self):
            self.rng = np.random.default_rng(seed)
            self.actions = []

        def observation_spec(self):
            return {
                'image': specs.BoundedArray((4, 6, 3), np.uint8, 0, 255),
                'half': specs.Array((), np.float16),
                'double': specs.Array((2,), np.float64),
                'flag': specs.Array((), bool),
                'near': specs.BoundedArray((2,), np.int64, 5, 9),
                'far': specs.Array((), np.int64),
                'none': specs.Array((0,), np.float64),
            }

        def action_spec(self):
            return {
                'move': specs.DiscreteArray(3),
                'start': specs.BoundedArray((2,), np.int64, 1, 3),
                'push': specs.BoundedArray((2,), np.float64, [0, -1e10], [800, 1e10]),
                'none': specs.BoundedArray((0,), np.float64, 0, 1),
            }

        def reset(self):
            self.count = 0
            return dm_env.restart(self.obs())

        def step(self, action):
            for key, spec in self.action_spec().items():
                spec.validate(action[key])
            self.actions.append(action)
            self.count += 1
            if self.count == limit:
                return dm_env.TimeStep(dm_env.StepType.LAST, 2.0, discount, self.obs())
            return dm_env.transition(1.0, self.obs())

        def obs(self):
            return {
                'image': np.full((4, 6, 3), self.count, np.uint8),
                'half': np.float16(self.count / 2),
                'double': self.rng.standard_normal(2),
                'flag': np.bool_(self.count % 2),
                'near': np.array([5 + self.count % 5, 9]),
                'far': np.int64(1000 * self.count),
                'none': np.zeros(0),
            }

    return Timer()


class Versions(CounterEnv):
    """Shows the versions of Python and numpy that it lives with."""

    @property
    def obs_space(self):
        return {**super().obs_space, 'versions': elements.Space(np.int32, (4,))}

    def step(self, action):
        numbers = [int(x) for x in np.__version__.split('.')[:2]]
        return {
            **super().step(action),
            'versions': np.int32([*sys.version_info[:2], *numbers]),
        }


def versions(index):
    """Environment number `index`."""
    return Versions(index)
