"""Memory Maze on the real simulator."""

import numpy as np
import pytest

import embodied
from embodied import envs
from tests.envs import playing

pytestmark = [
    pytest.mark.suites,
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),  # of what dm_control imports
]


def test_episodes_play():
    env = envs.make('memmaze_9x9', seed=1)
    assert {k for k in env.obs_space if k[:3] != 'is_'} == {'image', 'reward'}
    assert env.act_space['action'].classes == 6
    seen = playing.play(env, 200, resets=[120])
    assert playing.ends(seen) == ([], [])
    assert seen[0]['image'].shape == (64, 64, 3)
    assert not np.array_equal(seen[0]['image'], seen[120]['image'])
    env.close()


def test_the_time_limit_is_not_terminal():
    env = envs.make('memmaze_9x9', seed=1)
    inner = env
    while hasattr(inner, '_env') or 'env' in vars(inner):
        inner = vars(inner).get('env') or inner._env
    inner._time_limit = 4.9  # seconds of 4 steps each
    seen = playing.play(env, 45)
    assert playing.ends(seen) == ([20, 41], [])


def test_variants():
    env = envs.make('memmaze_11x11-ExtraObs-Vis')
    shapes = {k: v.shape for k, v in env.obs_space.items()}
    assert shapes['maze_layout'] == (11, 11)
    assert shapes['targets_pos'] == (4, 2)
    obs = playing.play(env, 2)[1]
    assert set(np.unique(obs['maze_layout'])) <= {0, 1}
    with pytest.raises(embodied.UserError, match=r'9x9, 11x11.*-vis'):
        envs.make('memmaze_9x9-blue')
    with pytest.raises(embodied.UserError, match='9x9'):
        envs.make('memmaze_10x10')


def test_seeds():
    playing.differ(lambda seed: envs.make('memmaze_9x9', seed=seed), steps=3, resets=[2])


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'debug', '--task', 'memmaze_9x9', steps=24)
