"""The command line on doubles: `python -m tests.run.program FLAGS`.

The agent and the environments are replaced, all else is real, down to exit codes. What the
double does wrong comes from the environment variable DOUBLE: a Python dict for FaultyEnv
(with `env`: which one fails), for Guest, or for Agent. `file_bytes` bounds what a file may
hold, as on a full disk; the process does so itself, because a test may not fork once JAX has
threads.
"""

import ast
import os
import resource
import time

from dreamerv3 import factories, main
from embodied import wrappers
from embodied.core import signals
from tests.doubles import CounterEnv, DoubleAgent, FaultyEnv
from tests.run.guests import Guest

SETUP = ast.literal_eval(os.environ.get('DOUBLE', '{}'))


class Agent(DoubleAgent):
    """Compiles for ever at update `compile`, shows nan at update `nan`."""

    def train(self, carry, data):
        if self.updates == SETUP.get('compile'):
            with signals.compiling():
                print('compiling', flush=True)
                time.sleep(1000)
        carry, out, metrics = super().train(carry, data)
        if self.updates == SETUP.get('nan'):
            metrics = {'a': 1.0, 'loss/rew': float('nan'), 'loss/val': float('inf')}
        return carry, out, metrics


def make_agent(config, env=None):
    env = env or make_env(config, 0)
    return Agent(env.obs_space, env.act_space, seed=config.seed)


def make_env(config, index):
    if 'fault' in SETUP and index == SETUP.get('env', 0):
        return wrappers.wrap(FaultyEnv(index, **{k: v for k, v in SETUP.items() if k != 'env'}))
    if 'how' in SETUP:
        return wrappers.wrap(Guest(index, **SETUP))
    return wrappers.wrap(CounterEnv(index, terminal=False, **SETUP.get('counter', {})))


if __name__ == '__main__':
    if 'file_bytes' in SETUP:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SETUP['file_bytes'],) * 2)
    factories.make_agent, factories.make_env = make_agent, make_env
    main.entry()
