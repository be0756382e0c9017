"""Duration, memory and arithmetic of the training step, the policy and the report.

    python benchmarks/train.py --kind image --size size1m --dtype float32

Prints JSON with a calibration of the machine just before and after. `rate` is the share of
the calibrated matmul rate that the step reaches by the FLOPs that XLA counts.
"""

import argparse
import json
import statistics
import time

import elements
import jax
import numpy as np
from calibrate import calibrate, median

from dreamerv3 import config as configs
from dreamerv3.agent import Agent

FLAGS = {
    'reward': elements.Space(np.float32), 'is_first': elements.Space(bool),
    'is_last': elements.Space(bool), 'is_terminal': elements.Space(bool),
}  # fmt: skip
SPACES = {
    'vector': ({'vector': elements.Space(np.float32, 24)},
               {'action': elements.Space(np.float32, 6, -1, 1)}),
    'image': ({'image': elements.Space(np.uint8, (64, 64, 3))},
              {'action': elements.Space(np.int32, (), 0, 17)}),
}  # fmt: skip


def make_agent(
    kind: str, size: str, dtype: str, cache: str = '', precompile: bool = False
) -> Agent:
    """The agent of a kind of spaces and a size block, for batches of 16 x 64."""
    own = {'jax.compilation_cache': cache, 'jax.precompile': precompile}
    config = configs.load([size], {'jax.compute_dtype': dtype, **own})
    extra = {k: config[k] for k in ('jax', 'seed', 'batch_size', 'batch_length',
                                    'report_length', 'replay_context')}  # fmt: skip
    obs, act = SPACES[kind]
    section = elements.Config(**config.agent, **extra, replay_priority=False)
    return Agent({**obs, **FLAGS}, act, section)


def make_batch(agent: Agent, length: int) -> dict[str, np.ndarray]:
    """Random observations and actions, no episode ends."""
    rng = np.random.default_rng(0)
    batch = agent.config.batch_size
    data = {}
    for key, space in agent.spaces.items():
        shape = (batch, length + agent.config.replay_context, *space.shape)
        if space.dtype == np.float32 and key != 'dyn/deter':
            data[key] = rng.uniform(-1, 1, shape).astype(np.float32)
        elif key in ('image', 'action', 'dyn/stoch'):
            data[key] = rng.integers(0, int(space.high.max()), shape).astype(space.dtype)
        else:
            data[key] = np.zeros(shape, space.dtype)
    return data


def measure_train(agent: Agent, repeats: int) -> dict[str, float]:
    """Compile and run the training step."""
    data = agent.put(make_batch(agent, agent.config.batch_length))
    carry = agent.init_train(agent.config.batch_size)
    start = time.perf_counter()
    carry, *_ = agent.train(carry, data)
    compile_s = time.perf_counter() - start
    durations = []
    for _ in range(repeats):
        start = time.perf_counter()
        carry, *_ = agent.train(carry, data)
        jax.block_until_ready(agent.state)
        durations.append(time.perf_counter() - start)
    step = next(fn for key, fn in agent._compiled.items() if key[0] == 'train')
    memory = step.memory_analysis()
    return {
        'compile_s': round(compile_s, 2),
        'train_ms': round(1e3 * statistics.median(durations), 1),
        'train_ms_min': round(1e3 * min(durations), 1),
        'gflop': round(step.cost_analysis()['flops'] / 1e9, 1),
        'temp_mib': round(memory.temp_size_in_bytes / 2**20),
    }


def measure_policy(agent: Agent, envs: int) -> float:
    """Milliseconds of a policy call."""
    obs = {k: np.zeros((envs, *s.shape), s.dtype) for k, s in agent.obs_space.items()}
    carry = agent.init_policy(envs)

    def call():
        nonlocal carry
        carry, *_ = agent.policy(carry, obs)

    return round(1e3 * median(call, 50), 2)


def main() -> None:
    """Measure what the flags name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--kind', choices=SPACES, default='vector')
    parser.add_argument('--size', default='size1m')
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--repeats', type=int, default=7)
    args = parser.parse_args()
    before = calibrate()
    start = time.perf_counter()
    agent = make_agent(args.kind, args.size, args.dtype)
    figures = {'build_s': round(time.perf_counter() - start, 2)}
    figures |= measure_train(agent, args.repeats)
    figures |= {f'policy_{n}_ms': measure_policy(agent, n) for n in (1, 16)}
    after = calibrate()
    speed = (before['matmul_f32'] + after['matmul_f32']) / 2
    figures['rate'] = round(figures['gflop'] / figures['train_ms'] * 1e3 / speed, 3)
    print(json.dumps({**vars(args), **figures, 'before': before, 'after': after}))


if __name__ == '__main__':
    main()
