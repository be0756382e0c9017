"""LangRoom on the real package."""

import numpy as np
import pytest

from embodied import envs
from embodied.envs.langroom import LangRoom
from tests.envs import playing

pytestmark = pytest.mark.suites


def test_episodes_play_and_time_limits_are_not_terminal():
    env = envs.make('langroom_run', seed=1)
    assert {k: (v.dtype, v.shape) for k, v in env.obs_space.items() if k[:3] != 'is_'} == {
        'image': (np.uint8, (64, 64, 3)), 'text': (np.int32, ()), 'reward': (np.float32, ()),
        'log/image': (np.uint8, (64, 256, 3)),
    }  # fmt: skip
    assert {k: v.classes for k, v in env.act_space.items()} == {
        'move': 5, 'talk': 15, 'reset': 2,
    }  # fmt: skip
    seen = playing.play(env, 420, resets=[210])
    assert playing.ends(seen) == ([200, 410], [])
    assert all(0 <= x['text'] < 15 for x in seen)


def test_a_shorter_limit():
    seen = playing.play(LangRoom('echo', length=7), 40, resets=[20])
    assert playing.ends(seen) == ([7, 15, 27, 35], [])


def test_the_right_answer_pays():
    """The colour is said with the step that asks for it: to copy the word is too late."""
    import langroom

    env = LangRoom('run', seed=2)
    words = langroom.langroom.VOCAB
    env.step({'move': 0, 'talk': 0, 'reset': True})
    rewards = []
    for _ in range(150):
        ahead = env._env.words[0]
        talk = words.index(ahead) if ahead in langroom.langroom.COLORS else 0
        obs = env.step({'move': 0, 'talk': talk, 'reset': False})
        assert words[int(obs['text'])] == ahead
        rewards.append(float(obs['reward']))
    assert set(rewards) == {0.0, 1.0}


def test_seeds():
    playing.differ(lambda seed: envs.make('langroom_run', seed=seed), steps=40)


def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'debug', '--task', 'langroom_run')
