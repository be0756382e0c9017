"""Runs that the version before saved load, and go on as they went on there.

tests/saved_runs/README.md says how they were recorded, and when to record them again.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest

from dreamerv3 import config as configs
from dreamerv3 import factories
from embodied import checkpoint
from embodied.jax import distributions

from .golden import Modes

FOLDER = pathlib.Path(__file__).parents[1] / 'saved_runs'
RECORDED = json.loads((FOLDER / 'recorded.json').read_text())


def load_config(folder):
    config = configs.load([], configs.read_file(FOLDER / 'ram' / 'config.yaml'))
    return config.update({'logdir': str(folder)})


def load_replay(folder, storage):
    """The recorded replay, in a copy of its folder."""
    shutil.copytree(FOLDER / storage, folder / storage)
    config = load_config(folder / storage).update({'replay.storage': storage})
    replay = factories.make_replay(config)
    replay.load(checkpoint.read(folder / storage, ['replay'])['replay'])  # warnings are errors
    return config, replay


@pytest.fixture(scope='module')
def agent(tmp_path_factory):
    """The recorded agent, whose draws are modes, so that they depend on no generator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributions, 'draws', Modes())
        agent = factories.make_agent(load_config(tmp_path_factory.mktemp('none')))
        agent.load(checkpoint.read(FOLDER / 'ram', ['agent'])['agent'])
        yield agent


def test_an_agent_has_all_that_the_file_has(agent):
    (file,) = (FOLDER / 'ram' / 'ckpt').glob('*/agent.npz')
    saved = agent.save()
    assert saved['counters'] == {'updates': 10, 'batches': 10, 'actions': 100, 'evals': 0}
    with np.load(file) as arrays:
        recorded = {k.removeprefix('params/'): arrays[k] for k in arrays if k[:7] == 'params/'}
    assert set(saved['params']) == set(recorded)
    assert any(name.startswith('opt/') and value.any() for name, value in recorded.items())
    for name, value in recorded.items():
        np.testing.assert_array_equal(saved['params'][name], value, err_msg=name)


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_a_replay_has_all_steps(tmp_path, storage):
    _, replay = load_replay(tmp_path, storage)
    assert len(replay) == 180
    data = replay.sample(3000)  # of 180 items, whose generator was saved as well
    assert data['is_first'].shape == (3000, 11)
    steps = {k: v.reshape(3000 * 11, -1) for k, v in data.items()}
    stepids, places = np.unique(steps['stepid'], axis=0, return_index=True)
    assert len(stepids) == 200
    for key, mean in RECORDED['steps'][storage].items():
        np.testing.assert_allclose(steps[key][places].mean(0), mean, rtol=1e-5, err_msg=key)


def test_the_next_updates_are_those_of_the_version_before(agent, tmp_path):
    config, replay = load_replay(tmp_path, 'ram')
    stream = iter(factories.make_stream(config, replay, 'train'))
    carry = agent.init_train(config.batch_size)
    found = []
    for _ in RECORDED['metrics']:
        carry, _, metrics = agent.train(carry, next(stream))
        found.append({k: float(metrics[k]) for k in RECORDED['metrics'][0]})
    for ours, theirs in zip(found, RECORDED['metrics'], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
