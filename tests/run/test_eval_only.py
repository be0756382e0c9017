"""eval_only: which agent it runs, for how long, and what it says."""

import importlib
import shutil

import numpy as np
import pytest

from embodied.checkpoint import checkpoint
from embodied.core.errors import UserError
from tests.doubles import CounterEnv
from tests.run.harness import Agent, Run

eval_only = importlib.import_module('embodied.run.eval_only')  # not the function


class Evaluated(Agent):
    """Allows nothing but acting in the mode eval."""

    def policy(self, carry, obs, mode='train'):
        assert mode == 'eval'
        return super().policy(carry, obs, mode)

    def train(self, carry, data):
        raise AssertionError('trained')

    report = init_train = init_report = stream = train


def make_env(index):
    """Env 0 scores 4 in 5 steps, env 1 scores 19 in 20."""
    return CounterEnv(index, length=(5, 20)[index % 2])


@pytest.fixture
def trained(tmp_path):
    Run(tmp_path / 'trained').train()
    return tmp_path / 'trained'


def evaluate(tmp_path, source, **args):
    args = {'from_checkpoint': str(source), 'steps': 10**9, **args}
    return Run(tmp_path / 'eval', make_env, Evaluated, **args).evaluate()


def test_episodes_are_dealt_out_so_that_short_ones_do_not_win(tmp_path, trained, capsys):
    run = evaluate(tmp_path, trained, envs=2, episodes=5)
    scores = [line['episode/score'] for line in run.lines('scores.jsonl')]
    assert sorted(scores) == [4, 4, 4, 19, 19]
    assert 'Score: mean 10, deviation 7.34847, 5 episodes' in capsys.readouterr().out


def test_fewer_episodes_than_envs(tmp_path, trained, capsys):
    run = evaluate(tmp_path, trained, envs=4, episodes=1)
    assert len(run.envs) == 1
    assert 'Score: mean 4, deviation 0, 1 episodes' in capsys.readouterr().out


def test_steps_end_it(tmp_path, trained, capsys):
    run = evaluate(tmp_path, trained, envs=2, steps=43)
    assert run.step == 44
    assert len(run.lines('scores.jsonl')) == 4 + 1
    assert '5 episodes' in capsys.readouterr().out


def test_fewer_episodes_than_asked_for_are_an_error_after_the_result(tmp_path, trained, capsys):
    args = {'from_checkpoint': str(trained), 'steps': 20, 'episodes': 6}
    run = Run(tmp_path / 'eval', make_env, Evaluated, **args)
    with pytest.raises(UserError, match=r'Played 4 of --run\.episodes 6 .*--run\.steps 20'):
        run.evaluate()
    assert 'Score: mean 4, deviation 0, 4 episodes' in capsys.readouterr().out
    assert len(run.lines('scores.jsonl')) == 4
    eval_only.check_count(6, run.args)
    with pytest.raises(UserError, match=r'5 of '):
        eval_only.check_count(5, run.args)


def test_no_episode(tmp_path, trained, capsys):
    evaluate(tmp_path, trained, steps=3)
    assert 'No episode ended within 3 steps' in capsys.readouterr().out


@pytest.mark.parametrize('place', ['', 'ckpt', 'ckpt/latest', 'ckpt/STAMP', 'copied alone'])
def test_the_agent_comes_from_the_checkpoint(tmp_path, trained, place):
    folder = checkpoint.find(trained)[0]
    source = trained / place.replace('STAMP', folder.name)
    if place == 'copied alone':
        shutil.copytree(folder, source)
    run = evaluate(tmp_path, source, episodes=2)
    saved = checkpoint.read(trained, ['agent'])['agent']
    assert run.agent.updates == saved['updates'] > 0
    np.testing.assert_array_equal(run.agent.weight, saved['weight'])


def test_nothing_but_metrics_is_written(tmp_path, trained):
    before = sorted((x, x.stat().st_mtime_ns) for x in trained.rglob('*'))
    evaluate(tmp_path, trained, episodes=2, log_every=-1.0)
    names = sorted(x.name for x in (tmp_path / 'eval').iterdir())
    assert names == ['metrics.jsonl', 'scores.jsonl']
    assert sorted((x, x.stat().st_mtime_ns) for x in trained.rglob('*')) == before


def test_metrics(tmp_path, trained):
    run = evaluate(tmp_path, trained, episodes=2, log_every=-1.0)
    names = {name for line in run.lines() for name in line}
    assert {'episode/score', 'epstats/log/step/avg', 'fps/policy'} <= names


@pytest.mark.parametrize('path', ['', 'typo', 'empty'])
def test_a_wrong_path_is_an_error_and_never_a_random_policy(tmp_path, path):
    (tmp_path / 'empty').mkdir()
    run = Run(tmp_path / 'eval', make_env, from_checkpoint=path and str(tmp_path / path))
    with pytest.raises(UserError, match=r'run\.from_checkpoint'):
        run.evaluate()
    assert (run.agent, run.envs, run.logger) == (None, [], None)


def test_envs_are_closed_after_an_error(tmp_path, trained):
    class Broken(Evaluated):
        def policy(self, carry, obs, mode='train'):
            raise RuntimeError('the policy broke')

    run = Run(tmp_path / 'eval', make_env, Broken, from_checkpoint=str(trained), envs=2)
    with pytest.raises(RuntimeError, match='the policy broke'):
        run.evaluate()
    assert [env.closed for env in run.envs] == [True, True]


def test_the_folder_of_a_training_run_is_refused_untouched(trained):
    before = sorted((x, x.stat().st_mtime_ns) for x in trained.rglob('*'))
    run = Run(trained, make_env, Evaluated, from_checkpoint=str(trained))
    with pytest.raises(UserError, match=r'folder of a training run.*--logdir'):
        run.evaluate()
    assert sorted((x, x.stat().st_mtime_ns) for x in trained.rglob('*')) == before
