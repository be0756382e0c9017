"""Priorities from the agent's updates to the samples of later updates, through `train`."""

import numpy as np
import pytest

import embodied
from tests.doubles import CounterEnv
from tests.run.harness import Agent, Run

HARD = range(40, 44)  # the steps of an episode that the agent finds hard
PRIO = {'exponent': 0.8, 'maxfrac': 0.5, 'initial': np.inf, 'zero_on_sample': True}


class Judge(Agent):
    """Hands back a high priority for the steps of HARD and a low one for all others."""

    def train(self, carry, data):
        carry, outs, metrics = super().train(carry, data)
        hard = np.isin(data['step'][:, 1:], HARD)
        context = {key: value[:, 1:] for key, value in outs['replay'].items()}
        outs['replay'] = {**context, 'priority': np.where(hard, 50, 0.01).astype(np.float32)}
        return carry, outs, metrics


def share_of_hard_steps(tmp_path, fracs):
    """Train on episodes of 100 steps and return what share of the later samples is hard."""

    class Prioritizing(Run):
        def make_replay(self, folder='replay', mode='train'):
            selector = embodied.selectors.make(fracs, PRIO, recexp=1.0)
            return super().make_replay(folder, mode, selector=selector, online=False)

    def make_env(index=0):
        return CounterEnv(index, length=100)

    run = Prioritizing(tmp_path, make_env, Judge, steps=600, train_ratio=16.0).train()
    seen = np.array(run.agent.seen[len(run.agent.seen) // 2 :])
    return np.isin(seen, HARD).any(2).mean()


@pytest.mark.parametrize('priority', [1.0, 0.5])
def test_a_hard_sequence_is_sampled_more_often(tmp_path, priority):
    fracs = {'uniform': 1 - priority, 'priority': priority, 'recency': 0.0}
    uniform = {'uniform': 1.0, 'priority': 0.0, 'recency': 0.0}
    plain = share_of_hard_steps(tmp_path / 'plain', uniform)
    share = share_of_hard_steps(tmp_path / 'prioritized', fracs)
    assert plain < 0.15  # sequences of 5 meet 4 steps of 100 in 8 places
    assert share > 3 * plain
    assert share > 0.3


def test_the_size_to_come_is_said_once(tmp_path, capsys):
    Run(tmp_path, capacity=1000, steps=30).train()
    out = capsys.readouterr().out
    assert out.count('replay at 1,000 steps of ') == 1
    assert 'of RAM' in out
