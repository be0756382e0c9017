"""Agents and batches for the benchmarks of the agent. Prints nothing by itself.

Batches are 16 x 64, from spaces like those of a control suite (vector) and of Crafter (image).
"""

import argparse
import time
from concurrent.futures import Future
from typing import Any, NamedTuple

import elements
import jax
import numpy as np

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
AGENT_KEYS = (
    'jax', 'seed', 'batch_size', 'batch_length', 'report_length', 'replay_context',
)  # fmt: skip


class Step(NamedTuple):
    """A compiled step, what was traced for it, and how many seconds both took.

    Those of compiling include the lowering to XLA's input.
    """

    traced: Any
    compiled: Any
    trace_s: float
    compile_s: float


class Watched(Agent):
    """An agent whose `steps` holds a `Step` for each that was compiled, as train or report."""

    def __init__(self, *args: Any):
        self.steps: dict[str, Step] = {}
        super().__init__(*args)

    def _compile(self, name: str, mesh: Any, jitted: Any, *args: Any) -> Future:
        start = time.perf_counter()
        traced = jitted.trace(*args)
        middle = time.perf_counter()
        future = super()._compile(name, mesh, jitted, *args)  # finds what was traced
        compiled = future.result()
        self.steps[name] = Step(traced, compiled, middle - start, time.perf_counter() - middle)
        return future


class Unallocated(Watched):
    """Compiles the update and the report, but never has any parameters."""

    def __init__(self, obs_space: dict, act_space: dict, config: elements.Config):
        super().__init__(obs_space, act_space, config.update({'jax.enable_policy': False}))

    def _build_init(self) -> Future:
        return Future()  # that is never there


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser of the flags that name an agent; text: what the program says of itself."""
    found = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument('--kind', choices=SPACES, default='vector')
    found.add_argument('--size', default='size1m')
    found.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
    return found


def make_config(size: str, dtype: str, **flags: Any) -> elements.Config:
    """The whole configuration of a size block. There is no compilation cache by default."""
    overrides = {'jax.compute_dtype': dtype, 'jax.compilation_cache': '', **flags}
    return configs.load([size], overrides)


def make_agent(kind: str, config: elements.Config, cls: type = Agent) -> Any:
    """The agent of a kind of spaces."""
    extra = {key: config[key] for key in AGENT_KEYS}
    obs, act = SPACES[kind]
    section = elements.Config(**config.agent, **extra, replay_priority=False)
    return cls({**obs, **FLAGS}, act, section)


def compile_step(agent: Agent, name: str) -> None:
    """Compile train or report for the batches of `make_batch`."""
    config = agent.config
    length = config.batch_length if name == 'train' else config.report_length
    agent._step(name, config.batch_size, length + config.replay_context)


def make_batch(agent: Agent, name: str) -> dict[str, jax.Array]:
    """Random observations and actions on the devices, no episode ends; for train or report."""
    config, rng = agent.config, np.random.default_rng(0)
    length = config.batch_length if name == 'train' else config.report_length
    lead = (config.batch_size, length + config.replay_context)
    data = {}
    for key, space in agent.spaces.items():
        shape = (*lead, *space.shape)
        if space.dtype == np.float32 and key != 'dyn/deter':
            data[key] = rng.uniform(-1, 1, shape).astype(np.float32)
        elif key in ('image', 'action', 'dyn/stoch'):
            data[key] = rng.integers(0, int(space.high.max()), shape).astype(space.dtype)
        else:
            data[key] = np.zeros(shape, space.dtype)
    return agent.put(data)
