"""What environments report in info, on its way to the metrics."""

import fractions
import math
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

from embodied import logging
from embodied.core import wrappers
from embodied.core.errors import UserError
from embodied.envs import gym as adapter
from embodied.envs import gyminfo
from embodied.run.driver import Driver

LENGTH = 4  # steps of an episode


class Reports(gymnasium.Env):
    """`cost` in each step, `is_success` in the last one of odd episodes, and `log/…`."""

    def __init__(self):
        self.observation_space = gs.Box(-1, 1, (2,))
        self.action_space = gs.Discrete(3)
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        self.count, self.episode = 0, self.episode + 1
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        info = {'cost': self.count, 'log/nan': math.nan, 'log/pair': np.ones(2), 'text': 'x'}
        over = self.count == LENGTH
        if over and self.episode % 2:
            info |= {'is_success': True, 'log/word': 'won'}
        return np.zeros(2, np.float32), 0.0, over, False, info


def make(index=0, info=r'is_success|cost'):
    return wrappers.wrap(adapter.FromGym(Reports(), info=info))


def policy(carry, obs):
    return carry, {'action': np.zeros(len(obs['reward']), np.int32)}, {}


def statistics(driver, episodes):
    stats = logging.Episodes(timeout=180)
    driver.on_step(stats.add)
    stored = set()
    driver.on_batch(lambda batch, workers: stored.update(batch))
    driver(policy, episodes=episodes)
    driver.close()
    assert not any(key.startswith('log/') for key in stored)
    return stats.stats()


@pytest.mark.parametrize('kind', ['local', 'process', 'foreign'])
def test_entries_become_statistics_of_episodes(kind):
    python = sys.executable if kind == 'foreign' else ''
    driver = Driver([make], kind == 'process', python=python)
    found = statistics(driver, episodes=2)
    for key, value in {'avg': 2.5, 'max': 4, 'sum': 10}.items():
        assert found[f'epstats/log/cost/{key}'] == value
        assert found[f'epstats/log/is_success/{key}'] == 1  # of the episode that has it
        assert math.isnan(found[f'epstats/log/nan/{key}'])
    assert found['epstats/log/pair/sum'].tolist() == [LENGTH, LENGTH]
    assert found['epstats/log/word'] == 'won'
    assert not any('text' in key for key in found)


def test_without_the_option_only_log_entries_are_taken():
    found = statistics(Driver([lambda: make(info='')], False), episodes=2)
    assert {key.split('/')[2] for key in found if '/log/' in key} == {'nan', 'pair', 'word'}


@pytest.mark.parametrize(
    ('value', 'wanted'),
    [
        (True, 1.0), (3, 3.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.int64(7), 7),
        (np.bool_(True), True), (fractions.Fraction(1, 2), 0.5), (10**400, math.inf),
        (-(10**400), -math.inf), ([1, 2], [1, 2]), ('word', 'word'), (np.str_('word'), 'word'),
        ('x' * 20_000, 'x' * 10_000), (np.longdouble(2), 2.0),
    ],
)  # fmt: skip
def test_values(value, wanted, capsys):
    (found,) = gyminfo.Info('')({'log/x': value}).values()
    assert found.tolist() == wanted
    assert found.dtype.kind in 'biufU'
    assert found.dtype.itemsize <= 8 or found.dtype.kind == 'U'
    assert not capsys.readouterr().out


@pytest.mark.parametrize('value', [object(), b'x', [[1], [1, 2]], 1j, np.zeros((1,) * 4), {1}])
def test_other_values_are_left_out_with_one_warning(value, capsys):
    info = gyminfo.Info('odd')
    assert info({'odd': value}) == info({'odd': value}) == {}
    out = capsys.readouterr().out
    assert out.count('\n') == 1
    assert "Warning: info['odd'] is a" in out


def test_none_and_unnamed_values_are_left_out_without_a_word(capsys):
    assert gyminfo.Info('a')({'a': None, 'ab': 1, 'b': object()}) == {}
    assert not capsys.readouterr().out


def test_names_of_nested_entries_are_joined():
    loop = {}
    loop['again'] = loop
    info = {'episode': {'r': 2.0, 'l': 3}, 'log': {'x': 1}, 'loop': loop}
    assert gyminfo.Info('episode/r')(info) == {'log/episode/r': 2.0, 'log/x': 1.0}


def test_a_wrong_expression_is_refused():
    with pytest.raises(UserError, match=r"'\(' is not a regular expression.*env\.gym\.info"):
        adapter.FromGym(Reports(), info='(')


def test_a_declared_key_wins():
    class Both(Reports):
        def __init__(self):
            super().__init__()
            self.observation_space = gs.Dict({'x': gs.Discrete(2), 'log/cost': gs.Discrete(2)})

        def reset(self, **kwargs):
            return {'x': 0, 'log/cost': 1}, {'cost': 5}

    env = wrappers.wrap(adapter.FromGym(Both(), info='cost'))
    obs = env.step({'action': np.int32(0), 'reset': np.bool_(True)})
    assert obs['log/cost'] == 1
