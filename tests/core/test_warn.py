"""Warnings that are said once, by one process for all environments."""

import functools
import sys

import elements
import numpy as np
import pytest

import embodied
from embodied.core import warn
from tests.doubles import CounterEnv
from tests.run.test_driver import record


class Climber(CounterEnv):
    """Leaves the bounds of the second entry of `pose` from its third step on."""

    @property
    def obs_space(self):
        high = np.float32([1, 2])
        return {**super().obs_space, 'pose': elements.Space(np.float32, (2,), -high, high)}

    def step(self, action):
        obs = super().step(action)
        return {**obs, 'pose': np.float32([1, obs['step']])}


def climber(index, strict=False):
    """A module's function, which another interpreter finds."""
    return embodied.wrappers.wrap(Climber(index), strict)


def policy(carry, obs):
    return carry, {'action': np.zeros(len(obs['is_first']), np.int32)}, {}


KINDS = {'here': (False, ''), 'process': (True, ''), 'interpreter': (True, sys.executable)}


@pytest.mark.parametrize('kind', KINDS)
def test_environments_of_all_processes_share_one_warning(kind, capsys):
    parallel, python = KINDS[kind]
    makers = [functools.partial(climber, index) for index in range(2)]
    driver = embodied.Driver(makers, parallel, python=python)
    seen = record(driver)
    driver(policy, steps=14)
    driver.close()
    out = capsys.readouterr().out
    assert out.count('Warning') == out.count('entry 1 is 3.0, expected from -2.0 to 2.0') == 1
    assert [[x['pose'][1] for x in steps] for steps in seen] == [list(range(7))] * 2


@pytest.mark.parametrize('kind', KINDS)
def test_strict_spaces_end_it_in_all_processes(kind):
    parallel, python = KINDS[kind]
    makers = [functools.partial(climber, 0, True)]
    driver = embodied.Driver(makers, parallel, python=python, restarts=9)
    with pytest.raises(embodied.UserError, match=r'Env 0, step 4.*entry 1 is 3\.0'):
        driver(policy, steps=14)


def test_a_flood_of_topics_ends_and_text_stays_a_line(capsys):
    for index in range(1000):
        warn.once(f'topic {index}', f'a\nb\x1b[2J {index} {"x" * 5000}')
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == warn.MOST
    assert lines[7].startswith('Warning: a b [2J 7 xxx')
    assert max(map(len, lines)) < 1100
