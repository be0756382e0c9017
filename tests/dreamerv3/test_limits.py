"""Spaces that are too large are refused by name and number before anything is made."""

import sys

import elements
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

from dreamerv3 import config as configs
from dreamerv3 import factories, limits
from dreamerv3.training import wrap
from embodied import UserError


class Env(gymnasium.Env):
    observation_space = gs.Box(-1, 1, (2,))

    def __init__(self, actions, observations=None):
        self.action_space = actions
        self.observation_space = observations or self.observation_space


def many(count):
    return gs.Dict({f'k{i}': gs.Discrete(2) for i in range(count)})


@pytest.mark.parametrize(
    ('spaces', 'words'),
    [
        ((gs.Discrete(2**30),), ("'action'", '1,073,741,824 classes', '262,144')),
        ((gs.Discrete(300_000),), ("'action'", '300,000 classes')),
        ((gs.MultiDiscrete([400] * 1000),), ("'action'", '400,000 outputs', '(1000,)')),
        ((gs.MultiBinary(200_000),), ("'action'", '400,000 outputs', '2 classes')),
        ((gs.Box(-1, 1, (600, 600)),), ("'action'", '360,000 outputs', 'numbers of shape')),
        ((gs.MultiDiscrete([2, 3] * 1000),), ('2,000 action keys', 'action/0', '256')),
        ((many(2000),), ('2,000 action keys', 'k0, k1', '256')),
        ((gs.Discrete(2), many(2000)), ('2,000 observation keys', '512')),
    ],
)
def test_too_large_is_refused_by_name_and_number(tmp_path, monkeypatch, spaces, words):
    monkeypatch.setitem(sys.modules, 'embodied.jax.runtime.setup', None)
    config = configs.load(['debug'], {'logdir': str(tmp_path), 'task': 'gym_Large-v0'})
    with pytest.raises(UserError) as caught:
        factories.make_agent(config, wrap(Env(*spaces)))
    assert all(word in str(caught.value) for word in words), caught.value
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    'space',
    [gs.Discrete(200_000), gs.Box(-1, 1, (100_000,)), gs.MultiBinary(100_000), many(200)],
)
def test_what_can_be_compiled_is_not_refused(space):
    env = wrap(Env(space))
    limits.check(env.obs_space, {k: v for k, v in env.act_space.items() if k != 'reset'})


def test_widths_are_those_of_the_policy():
    space = elements.Space(np.int32, (3, 2), 0, 5)
    assert limits._width(space) == 30
    assert limits._width(elements.Space(bool, (4,))) == 8
    assert limits._width(elements.Space(np.float32, (4,), -1, 1)) == 4
