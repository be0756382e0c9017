"""The environments of a parallel run in an older interpreter, without JAX."""

import os

import numpy as np
import pytest

from embodied.core import rpc
from tests.run.parallel import test_parallel as base
from tests.run.parallel.test_parallel import start  # noqa: F401 - a fixture

OLD = os.environ.get('OLD_PYTHON', '')

pytestmark = [
    pytest.mark.suites,
    pytest.mark.skipif(not OLD, reason='OLD_PYTHON names no interpreter with numpy 1'),
]


class Part(base.Part):
    def command(self, name):
        return [OLD, '-m', 'tests.run.parallel.parts', name]


def test_environments_of_numpy_1_23_feed_a_run(start, tmp_path):  # noqa: F811
    addresses = {x: rpc.fill('localhost:{auto}') for x in ('actor_addr', 'replay_addr')}
    flags = {**addresses, 'remote_envs': True, 'steps': 600, 'train_ratio': 8.0, 'eval_envs': 1}
    flags['actor_batch'] = 1  # a larger one may pass the last step
    logdir = tmp_path / 'run'
    envs = Part('envs', logdir, **flags)
    try:
        start(**flags).end()
        envs.end()
    finally:
        envs.process.kill()
    assert len(base.stored(logdir)) == base.steps(logdir)['agent'] == 600
    assert np.unique(base.stored(logdir)[:, 1]).tolist() == [0, 1, 2]
