"""train_eval: what an evaluation plays, logs and leaves alone."""

import numpy as np
import pytest

from embodied.checkpoint import checkpoint
from tests.doubles import CounterEnv, FaultyEnv
from tests.run.harness import Agent, Run

ARGS = {'eval_envs': 2, 'eval_eps': 3, 'report_every': -1.0, 'envs': 2, 'steps': 100}


class Noting(Agent):
    """Notes the envs it acts for and what it reports on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.acted = {'train': set(), 'eval': set()}
        self.reported = []

    def policy(self, carry, obs, mode='train'):
        self.acted[mode] |= set(obs['env'].tolist())
        return super().policy(carry, obs, mode)

    def report(self, carry, data):
        self.reported.append(set(data['env'].flat))
        return super().report(carry, data)


def make_env(index):
    """Episodes score 4 in training; 9 in the first eval env and 19 in the second."""
    return CounterEnv(index, length={100: 10, 101: 20}.get(index, 5))


def test_episodes_of_its_own_with_statistics_apart(tmp_path):
    run = Run(tmp_path, make_env, Noting, **ARGS).train_eval()
    assert run.step == 100  # steps of the evaluation do not count
    assert run.agent.acted == {'train': {0, 1}, 'eval': {100, 101}}
    lines = run.lines()
    evals = [line for line in lines if 'eval/episode/score' in line]
    assert len(evals) > 5
    # Two episodes of the first env and one of the second.
    assert {line['eval/episode/score'] for line in evals} == {(9 + 9 + 19) / 3}
    assert {line['eval/episode/length'] for line in evals} == {(10 + 10 + 20) / 3}
    assert {x['episode/score'] for x in lines if 'episode/score' in x} == {4}
    assert evals[0]['eval/epstats/log/step/max'] > 9
    assert all(set(x) == {'step', 'episode/score'} for x in run.lines('scores.jsonl'))


def test_batches_of_its_own_replay(tmp_path):
    run = Run(tmp_path, make_env, Noting, report_batches=2, consec_report=2, **ARGS)
    run.train_eval()
    assert all(x <= {0, 1} or x <= {100, 101} for x in run.agent.reported)
    reports = sum('report/loss/double' in x for x in run.lines())
    assert reports == sum('eval/loss/double' in x for x in run.lines()) > 5
    assert len(run.agent.reported) == 2 * 4 * reports
    assert run.replay_eval.length == 2 * 2 + 1
    assert len(run.replay_eval) > reports * 30


def test_training_is_that_of_train(tmp_path):
    one = Run(tmp_path / 'a', make_env, **ARGS).train()
    two = Run(tmp_path / 'b', make_env, **ARGS).train_eval()
    assert one.agent.trained_at == two.agent.trained_at
    np.testing.assert_array_equal(one.agent.weight, two.agent.weight)
    assert one.lines('scores.jsonl') == two.lines('scores.jsonl')


def test_no_evaluation_before_training_begins(tmp_path):
    run = Run(tmp_path, make_env, Noting, **{**ARGS, 'steps': 10}).train_eval()
    assert (run.agent.acted['eval'], run.agent.reports) == (set(), 0)


@pytest.mark.parametrize(('episodes', 'envs'), [(0, 0), (1, 1), (5, 2)])
def test_no_more_envs_than_episodes(tmp_path, episodes, envs):
    run = Run(tmp_path, make_env, **{**ARGS, 'eval_eps': episodes}).train_eval()
    assert sum(env.env >= 100 for env in run.envs) == envs
    assert all(env.closed for env in run.envs)
    assert len(run.replay_eval or ()) == 0 or episodes


def test_resume_has_the_eval_replay_back(tmp_path):
    first = Run(tmp_path, make_env, **ARGS).train_eval()
    parts = checkpoint.read(tmp_path)
    assert parts['replay_eval']['items'] == len(first.replay_eval) > 0
    second = Run(tmp_path, make_env, **{**ARGS, 'steps': 102}).train_eval()
    assert len(second.replay_eval) >= len(first.replay_eval)


@pytest.mark.parametrize('back', [False, True])
def test_train_and_train_eval_go_on_from_each_other(tmp_path, back):
    runs = [Run(tmp_path, make_env, **{**ARGS, 'steps': steps}) for steps in (100, 200)]
    ways = [runs[0].train, runs[1].train_eval]
    if back:
        ways = [runs[0].train_eval, runs[1].train]
    for way in ways:
        way()
    assert runs[1].step == 200
    assert runs[1].agent.updates == runs[0].agent.updates + 100


def test_an_error_closes_all_envs(tmp_path):
    class Broken(Noting):
        def policy(self, carry, obs, mode='train'):
            if mode == 'eval':
                raise RuntimeError('the policy broke')
            return super().policy(carry, obs, mode)

    run = Run(tmp_path, make_env, Broken, **ARGS)
    with pytest.raises(RuntimeError, match='the policy broke'):
        run.train_eval()
    assert [env.closed for env in run.envs] == [True] * 4


def test_an_eval_env_that_fails_costs_nothing_that_was_learned(tmp_path):
    def fail_late(index):
        return FaultyEnv(index, fault='raise', at=45) if index >= 100 else make_env(index)

    run = Run(tmp_path, fail_late, **{**ARGS, 'eval_envs': 1})
    with pytest.raises(ZeroDivisionError):
        run.train_eval()
    saved = checkpoint.read(tmp_path)
    assert (saved['step'], saved['agent']['updates']) == (run.step, run.agent.updates)
    assert run.step > 20  # of the save after the first updates
