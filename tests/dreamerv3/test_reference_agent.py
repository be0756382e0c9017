"""The agent of a run of the reference, taken over by ours."""

import pathlib

import numpy as np
import pytest

import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories, reference
from embodied.checkpoint import reference_checkpoint

FOLDER = pathlib.Path(__file__).parent.parent / 'golden' / 'reference_run'


@pytest.fixture(scope='module')
def agent():
    config = configs.load(['crafter', 'debug'], {'jax.compute_dtype': 'float32'})
    return factories.make_agent(config)


def test_the_agent_of_a_run_loads_completely(agent):
    data = reference_checkpoint.read(reference_checkpoint.find(FOLDER) / 'agent.pkl')
    dtypes = {k: v.dtype for k, v in agent.state.items()}
    before = agent.save()
    agent.load(agent.from_reference(data))
    saved = agent.save()
    counters = {'updates': 30, 'batches': 33, 'actions': 195, 'evals': 0}
    assert saved['counters'] == counters
    assert {k: v.dtype for k, v in agent.state.items()} == dtypes
    assert len(saved['params']) == len(data['params'])
    for name, value in data['params'].items():
        np.testing.assert_array_equal(saved['params'][reference.from_reference(name)], value)
    name = 'dyn/dyngru/kernel'
    assert (saved['params'][name] != before['params'][name]).any()


@pytest.mark.parametrize('data', [{'params': {'x/y': 1}, 'counters': {}}, {'w': 1}, [1]])
def test_anything_else_is_refused(data):
    with pytest.raises(embodied.UserError, match='none of the reference'):
        reference.convert(data)
