"""The random agent: uniform actions, the whole contract, nothing learned."""

import numpy as np

import embodied
from embodied.core import spaces
from tests.doubles import CounterEnv

ENV = CounterEnv()


def draw(agent: embodied.RandomAgent, calls: int, batch: int = 2) -> list:
    obs = {'is_first': np.zeros(batch, bool)}
    carry, acts = agent.init_policy(batch), []
    for _ in range(calls):
        carry, act, out = agent.policy(carry, obs)
        assert out == {}
        acts.append(act)
    return acts


def test_actions_are_in_their_space_and_have_no_reset():
    for act in draw(embodied.RandomAgent(ENV.obs_space, ENV.act_space, seed=0), 20, batch=3):
        assert act.keys() == {'action'}
        assert act['action'].shape == (3,)
        for value in act['action']:
            spaces.check('action', ENV.act_space['action'], value)


def test_seed_and_saved_state_decide_the_draws():
    agent = embodied.RandomAgent(ENV.obs_space, ENV.act_space, seed=3)
    draw(agent, 4)
    state = agent.save()
    wanted = [act['action'].tolist() for act in draw(agent, 10)]
    other = embodied.RandomAgent(ENV.obs_space, ENV.act_space, seed=3)
    other.load(state)
    assert [act['action'].tolist() for act in draw(other, 10)] == wanted
    other = embodied.RandomAgent(ENV.obs_space, ENV.act_space, seed=4)
    other.load(state)
    assert [act['action'].tolist() for act in draw(other, 10)] != wanted


def test_training_changes_nothing():
    agent = embodied.RandomAgent(ENV.obs_space, ENV.act_space)
    before = agent.save()
    stream = embodied.streams.Stateless(dict)
    assert agent.stream(stream) is stream
    assert agent.train(agent.init_train(2), {}) == ((), {}, {})
    assert agent.report(agent.init_report(2), {}) == ((), {})
    assert agent.save() == before
