"""Arithmetic, loops and kernels of a training step, against what was recorded.

A change that makes them grow, or shrink, is to be a decision: it comes with a new record, made
by `python -m tests.dreamerv3.test_flops` for the version of JAX that is installed. Other
versions compile in other ways, so each has a record of its own.
"""

import json
import os
import pathlib

import elements
import jax
import numpy as np
import pytest

from benchmarks import agents, flops

from . import golden

FILE = pathlib.Path(__file__).with_name('flops.json')
RECORD = 'python -m tests.dreamerv3.test_flops'
TOLERANCE = 0.03
SMALL = {
    'batch_size': 2, 'batch_length': 6, r'.*\.bins': 9, r'.*\.layers': 1, r'.*\.units': 8,
    r'.*\.depth': 2, r'.*\.mults': [2, 4], 'agent.imag_length': 3, 'jax.debug': True,
    'agent.dyn.rssm': {'deter': 16, 'hidden': 8, 'stoch': 2, 'classes': 4, 'blocks': 4},
}  # fmt: skip
OBS = {
    'vector': elements.Space(np.float32, 7),
    'image': elements.Space(np.uint8, (16, 16, 3)),
    **agents.FLAGS,
}
ACT = {'action': elements.Space(np.float32, 6, -1, 1)}


def measure() -> dict[str, float]:
    """Figures of the update of a small agent that sees a vector and an image.

    Those that end in _at_once are of heads that see all imagined states at once, as they do
    on accelerators.
    """
    found = {}
    for stepwise, end in ((True, ''), (False, '_at_once')):
        agent = agents.Unallocated(OBS, ACT, golden.agent_config(SMALL))
        agent.model.stepwise = stepwise
        agents.compile_step(agent, 'train')
        step = agent.steps['train']
        found |= {
            f'operations{end}': step.compiled.cost_analysis()['flops'],
            f'products{end}': flops.of_traced(step.traced),
            f'loops{end}': flops.loops(step.compiled),
            f'kernels{end}': flops.kernels(step.compiled),
        }
    return found


def record() -> None:
    """Write the figures for this version of JAX, and print them."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found[jax.__version__] = measure()
    FILE.write_text(json.dumps(found, indent=2, sort_keys=True) + '\n')
    print(f'JAX {jax.__version__}: {found[jax.__version__]}')


def test_the_update_costs_what_was_recorded():
    recorded = json.loads(FILE.read_text()).get(jax.__version__)
    if recorded is None:
        pytest.skip(f'No figures of JAX {jax.__version__} in {FILE.name}; record: {RECORD}')
    found = measure()
    hint = f'If that is meant: {RECORD}'
    assert found.keys() == recorded.keys(), hint
    for name, value in found.items():
        tolerance = 0 if name.startswith('loops') else TOLERANCE
        assert value == pytest.approx(recorded[name], rel=tolerance), f'{name}. {hint}'


if __name__ == '__main__':
    os.environ['JAX_PLATFORMS'] = 'cpu'  # as in the tests
    record()
