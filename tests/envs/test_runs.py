"""Short runs of the suites whose own tests need no further package, and what all runs share."""

import numpy as np
import pytest

import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories
from embodied import envs
from tests.envs import playing

pytestmark = pytest.mark.suites


def test_crafter_plays():
    env = envs.make('crafter_reward', logs=True, seed=3)
    seen = playing.play(env, 200, resets=[120])
    assert seen[0]['image'].shape == (64, 64, 3)
    assert seen[-1]['image'].std() > 5
    last, terminal = playing.ends(seen)
    assert last == terminal  # at most by death


@pytest.mark.filterwarnings('ignore::DeprecationWarning')  # of what dm_control imports
def test_a_factory_of_dm_control_plays():
    task = 'dm_dm_control.suite.cartpole:balance'
    env = envs.make(task, seed=1)
    seen = playing.play(env, 1200, resets=[100])
    assert playing.ends(seen) == ([1100], [])
    playing.differ(lambda seed: envs.make(task, seed=seed))


@pytest.mark.parametrize(
    'flags',
    [
        'crafter debug --env.crafter.size 48 96 --env.crafter.logs True',
        'crafter debug --env.crafter.size 48 48',
        'crafter debug --env.crafter.size 64 96',
        'debug --task gym_Pendulum-v1',
        'debug --task dm_dm_control.suite.cartpole:balance',
    ],
)
def test_short_runs(tmp_path, flags):
    playing.train(tmp_path, '--configs', *flags.split())


@pytest.mark.parametrize('size', [[84, 84], [64, 100]])
def test_other_sizes_are_refused_before_anything_compiles(tmp_path, size):
    flags = {'logdir': str(tmp_path), 'env.crafter.size': size}
    config = configs.load(['crafter', 'debug'], flags)
    with pytest.raises(embodied.UserError, match=r'sides that work: 48, 64, 80, 96, 112'):
        factories.make_agent(config)


@pytest.mark.parametrize('task', [x for x in envs.SUITES if x not in envs.BY_HAND])
def test_every_suite_makes_the_same_environment_for_the_same_index(tmp_path, task):
    """Through the factory of runs, with the defaults of the config."""
    names = {'dm': 'dm_tests.envs.toys:timer', 'dmc': 'dmc_cartpole_balance'}
    example = envs.SUITES[task].example or envs.SUITES[task].tasks[0]
    flags = {'logdir': str(tmp_path), 'task': names.get(task, f'{task}_{example}')}
    config = configs.load([], flags)
    runs = []
    for index in (0, 0, 1):
        env = factories.make_env(config, index)
        steps = 60 if task in ('bsuite', 'langroom') else 4
        runs.append(playing.play(env, steps, wrap=False))
        env.close()
    assert playing.same(runs[0], runs[1])
    assert not playing.same(runs[0], runs[2])
    assert runs[0][0]['reward'].dtype == np.float32
