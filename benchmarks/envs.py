"""Steps per second of every suite whose packages are here, with random actions and one core.

python benchmarks/envs.py [TASK ...]
"""

import sys
import time

import numpy as np

import embodied
from dreamerv3 import config as configs
from dreamerv3 import environments
from embodied import spaces

TASKS = (
    'dummy_disc', 'pinpad_three', 'crafter_reward', 'gym_CartPole-v1', 'gym_Pendulum-v1',
    'atari_pong', 'atari100k_pong', 'bsuite_catch/0', 'dmc_walker_walk', 'dmc_manip_reach_site',
    'dmc_rodent_run_gaps', 'loconav_ant_maze_m', 'loconav_quadruped_maze_m', 'memmaze_9x9',
    'langroom_run', 'procgen_coinrun',
)  # fmt: skip
SECONDS = 5.0


def measure(task: str) -> str:
    """One line of results, or why there are none."""
    config = configs.load([], {'task': task})
    start = time.perf_counter()
    try:
        env = environments.make_env(config, 0)
    except embodied.UserError as e:
        return str(e).splitlines()[0]
    build = time.perf_counter() - start
    rng = np.random.default_rng(0)
    acting = {k: v for k, v in env.act_space.items() if k != 'reset'}

    def step(reset: bool = False) -> bool:
        act = {k: spaces.sample(v, rng) for k, v in acting.items()}
        return bool(env.step({**act, 'reset': np.bool_(reset)})['is_first'])

    start = time.perf_counter()
    step(reset=True)
    reset = time.perf_counter() - start
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        count += not step()
    rate = count / (time.perf_counter() - start)
    env.close()
    return f'{rate:9.0f} steps/s   build {build:5.2f} s   reset {reset:5.2f} s'


if __name__ == '__main__':
    for name in sys.argv[1:] or TASKS:
        print(f'{name:<26}{measure(name)}', flush=True)
