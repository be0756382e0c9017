"""The train loop: when it updates, reports, saves and ends, and how it resumes."""

import functools
import math
import shutil
import signal
from fractions import Fraction

import numpy as np
import pytest

from embodied.checkpoint import checkpoint
from embodied.core import signals
from embodied.core.errors import UserError
from tests.doubles import CounterEnv
from tests.run.harness import Agent, Run


def start_step(run):
    """The env step at which the replay first holds a batch."""
    args = run.args
    length = args.batch_length * args.consec_train + args.replay_context
    return args.envs * (length - 1) + args.batch_size * args.batch_length


def expected_updates(run, ratio, stop=None):
    """The env steps at which updates are due, up to the end of the run."""
    start, stop = start_step(run), stop or run.step
    return [
        step
        for step in range(start, stop + 1)
        for _ in range(
            math.floor((step - start) * ratio) - math.floor((step - 1 - start) * ratio)
            if step > start
            else 0
        )
    ]


RATIOS = [
    (4, 16, 64, Fraction(1)),
    (16, 64, 32, Fraction(1, 32)),
    (16, 64, 512, Fraction(1, 2)),
    (1, 64, 512, Fraction(8)),
    (2, 4, 2.4, Fraction(3, 10)),
]


@pytest.mark.parametrize('envs', [1, 2, 5])
@pytest.mark.parametrize(('batch', 'length', 'ratio', 'expected'), RATIOS)
def test_updates_per_env_step(tmp_path, capsys, batch, length, ratio, expected, envs):
    shape = {'batch_size': batch, 'batch_length': length, 'train_ratio': float(ratio)}
    steps = envs * length + batch * length + 70
    run = Run(tmp_path, envs=envs, steps=steps, **shape).train()
    assert run.agent.trained_at == expected_updates(run, expected)
    assert run.agent.updates == math.floor((run.step - start_step(run)) * expected)
    out = capsys.readouterr().out
    text = f'{float(expected):g} ({expected.numerator} per {expected.denominator})'
    assert f'updates per env step: {text}\n' in out
    assert f'training starts after {start_step(run):,} env steps' in out
    assert f'the replay holds {batch * length:,} items (now 0)' in out


def test_ratio_zero_never_trains(tmp_path, capsys):
    run = Run(tmp_path, train_ratio=0.0).train()
    assert (run.step, run.agent.updates) == (100, 0)
    assert 'updates per env step: 0' in capsys.readouterr().out


def test_negative_ratio_trains_at_every_step(tmp_path, capsys):
    run = Run(tmp_path, train_ratio=-1.0, envs=2).train()
    assert run.agent.trained_at == list(range(start_step(run), run.step + 1))
    assert 'one after every step' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('envs', 'steps', 'expected'), [(1, 101, 101), (4, 101, 104), (16, 100, 112), (3, 2, 3)]
)
def test_steps_count_calls_of_the_envs(tmp_path, envs, steps, expected):
    run = Run(tmp_path, envs=envs, steps=steps).train()
    assert run.step == expected < steps + envs
    # Resets are steps too.
    assert sum(env.step_index + 1 + 10 * env.episode for env in run.envs) == run.step


def test_duration_ends_a_run(tmp_path):
    run = Run(tmp_path, steps=10**9, duration=1e-9).train()
    assert run.step < 10**9
    assert checkpoint.read(tmp_path, ['step']) == {'step': run.step}


class Stopped(Agent):
    """Asks the run to end in the middle of the updates of one step."""

    at = 50

    def train(self, carry, data):
        if self.updates == self.at - 1:
            signal.raise_signal(signal.SIGTERM)
            while not self.run.stopped():
                pass
        return super().train(carry, data)


@pytest.mark.parametrize('envs', [1, 3])
def test_a_stop_waits_for_one_update_and_loses_none(tmp_path, monkeypatch, envs):
    stops = []
    enter = signals.Stop.__enter__
    monkeypatch.setattr(
        signals.Stop, '__enter__', lambda self: stops.append(self) or enter(self)
    )
    args = {'envs': envs, 'train_ratio': 160.0, 'steps': 60}  # 20 updates a step
    whole = Run(tmp_path / 'whole', **args).train()
    first = Run(tmp_path / 'parts', make_agent=Stopped, **args)
    first.stopped = lambda: stops[-1].requested
    first.train()
    assert first.agent.updates == 50
    second = Run(tmp_path / 'parts', **args).train()
    assert second.agent.updates == whole.agent.updates


class Compiling(Agent):
    """Compiles its update until the env step `until` is over, if ever."""

    until = 10**9

    def ready(self):
        self.looks = getattr(self, 'looks', 0) + 1
        return self.looks > self.until

    def train(self, carry, data):
        assert self.looks > self.until
        return super().train(carry, data)


def test_the_first_update_waits_until_it_is_compiled(tmp_path):
    class Soon(Compiling):
        until = 3

    run = Run(tmp_path / 'waited', make_agent=Soon).train()
    plain = Run(tmp_path / 'plain').train()
    assert run.agent.trained_at == plain.agent.trained_at
    assert run.agent.looks > 3


def test_the_end_of_a_run_ends_that_wait_and_saves_what_was_seen(tmp_path):
    run = Run(tmp_path, make_agent=Compiling, duration=2.0).train()
    assert run.agent.trained_at == []
    assert 0 < int(run.step) < run.args.steps
    assert checkpoint.read(tmp_path)['step'] == int(run.step)
    # What was due is done by the run that goes on.
    again = Run(tmp_path).train()
    assert len(again.agent.trained_at) == len(Run(tmp_path / 'plain').train().agent.trained_at)


def test_consecutive_chunks_reach_the_agent_in_order(tmp_path):
    run = Run(tmp_path, consec_train=3).train()
    assert run.agent.consec == [i % 3 for i in range(len(run.agent.consec))]
    assert len(run.agent.consec) == run.agent.updates > 6


def test_latents_go_back_to_the_replay(tmp_path):
    run = Run(tmp_path, train_ratio=80.0, log_every=-1.0).train()
    data = run.replay.sample(50, 'report')
    assert data['latent'].max() > 50  # update numbers; the policy's are below 10
    assert sum(line.get('replay/updates', 0) for line in run.lines()) > 0


# Logs and files.


def test_what_is_logged(tmp_path):
    image_env = functools.partial(CounterEnv, image=True)
    run = Run(tmp_path, image_env, steps=100, log_every=-1.0, report_every=-1.0, envs=2).train()
    lines = run.lines()
    names = {name for line in lines for name in line}
    assert {
        'episode/score',
        'episode/length',
        'epstats/log/step/avg',
        'epstats/log/step/max',
        'epstats/log/step/sum',
        'epstats/reward_rate',
        'train/loss/double',
        'train/opt/updates',
        'report/loss/double',
        'replay/items',
        'replay/replay_ratio',
        'fps/policy',
        'fps/train',
        'timer/driver/train/sum',
    } <= names
    steps = [line['step'] for line in lines]
    assert steps == sorted(steps)
    assert steps[-1] == run.step == 100
    episode = next(line for line in lines if 'episode/score' in line)
    assert episode == {'step': 19, 'episode/score': 9, 'episode/length': 10}
    stats = next(line for line in lines if 'epstats/log/step/sum' in line)
    assert stats['epstats/log/step/avg'] == 4.5
    assert stats['epstats/reward_rate'] == 1 / 9  # 0 -> 1, then 1 all along


def test_scores_are_those_of_all_envs(tmp_path):
    def make_env(index):
        return CounterEnv(index, length=5 + index)

    run = Run(tmp_path, make_env, envs=2, steps=60).train()
    scores = [line['episode/score'] for line in run.lines('scores.jsonl')]
    assert sorted(scores) == [4.0] * 6 + [5.0] * 5
    assert all(set(x) == {'step', 'episode/score'} for x in run.lines('scores.jsonl'))


def test_train_metrics_are_means_between_logs(tmp_path):
    run = Run(tmp_path, log_every=1e9, train_ratio=4.0).train()
    (line,) = [x for x in run.lines() if 'train/opt/updates' in x]  # the log at the end
    assert line['train/opt/updates'] == (run.agent.updates + 1) / 2


def test_a_step_is_logged_once(tmp_path):
    run = Run(tmp_path, log_every=-1.0).train()
    logs = [line['step'] for line in run.lines() if 'fps/policy' in line]
    assert logs == list(range(10, 101, 10))


def test_report_averages_its_batches(tmp_path):
    args = {'consec_report': 2, 'report_batches': 3, 'report_every': -1.0}
    run = Run(tmp_path, steps=50, **args).train()
    reports = [line for line in run.lines() if 'report/loss/double' in line]
    assert run.agent.reports == 6 * len(reports) > 0


def test_a_report_changes_nothing_in_training(tmp_path):
    args = {'steps': 200, 'envs': 2}
    without = Run(tmp_path / 'a', **args).train()
    reported = Run(tmp_path / 'b', report_every=-1.0, log_every=-1.0, **args).train()
    assert reported.agent.reports > without.agent.reports == 0
    assert reported.agent.seen == without.agent.seen
    assert reported.agent.trained_at == without.agent.trained_at
    np.testing.assert_array_equal(reported.agent.weight, without.agent.weight)
    assert (tmp_path / 'a/scores.jsonl').read_text() == (
        tmp_path / 'b/scores.jsonl'
    ).read_text()


def test_the_same_seed_gives_the_same_run(tmp_path):
    one, two, other = (
        Run(tmp_path / name, seed=seed, envs=2, steps=200).train()
        for name, seed in (('a', 1), ('b', 1), ('c', 2))
    )
    assert one.agent.seen == two.agent.seen != other.agent.seen
    scores = [(tmp_path / x / 'scores.jsonl').read_text() for x in 'ab']
    assert scores[0] == scores[1]


# Checkpoints and resume.


@pytest.fixture
def saves(monkeypatch):
    """The env steps at which checkpoints are saved."""
    steps, save = [], checkpoint.Checkpoint.save

    def noted(self, permanent=False):
        steps.append(int(self.parts['step']))
        return save(self, permanent)

    monkeypatch.setattr(checkpoint.Checkpoint, 'save', noted)
    return steps


@pytest.mark.parametrize(
    ('save_every', 'expected'),
    [(1e9, [20, 100]), (0.0, [100]), (-1.0, [*range(10, 101, 10)])],
)
def test_when_it_saves(tmp_path, saves, save_every, expected):
    run = Run(tmp_path, save_every=save_every).train()
    assert run.agent.trained_at[0] == 13
    assert saves == expected


def test_what_it_saves(tmp_path):
    run = Run(tmp_path).train()
    parts = checkpoint.read(tmp_path)
    assert set(parts) == {'step', 'agent', 'replay', 'ratio'}
    assert parts['step'] == 100
    assert parts['agent']['updates'] == run.agent.updates == 88
    assert parts['replay']['items'] == len(run.replay) == 96


@pytest.mark.parametrize('ratio', [8.0, 2.4, 20.0])
@pytest.mark.parametrize('envs', [1, 3])
def test_n_steps_stop_n_steps_are_2n_steps(tmp_path, capsys, envs, ratio):
    args = {'envs': envs, 'train_ratio': ratio}
    whole = Run(tmp_path / 'whole', steps=240, **args).train()
    first = Run(tmp_path / 'parts', steps=120, **args).train()
    items = len(first.replay)
    capsys.readouterr()
    second = Run(tmp_path / 'parts', steps=240, **args).train()
    out = capsys.readouterr().out
    assert f'step 120, {items} replay items' in out
    assert 'training starts at once' in out
    assert (first.step, second.step, whole.step) == (120, 240, 240)
    assert first.agent.trained_at + second.agent.trained_at == whole.agent.trained_at
    assert second.agent.updates == whole.agent.updates
    np.testing.assert_array_equal(second.agent.weight, whole.agent.weight)
    assert len(second.replay) == len(whole.replay)


def test_resuming_a_finished_run_does_nothing(tmp_path, capsys, saves):
    Run(tmp_path).train()
    saves.clear()
    run = Run(tmp_path).train()
    assert (run.step, run.envs, saves) == (100, [], [])
    assert 'Nothing to do' in capsys.readouterr().out


def test_another_ratio_takes_effect_at_the_resume(tmp_path):
    Run(tmp_path, steps=100, train_ratio=0.8).train()
    run = Run(tmp_path, steps=200, train_ratio=16.0).train()
    assert run.agent.trained_at == [x for x in range(101, 201) for _ in range(2)]


def test_more_envs_take_effect_at_the_resume(tmp_path):
    Run(tmp_path, steps=100).train()
    run = Run(tmp_path, steps=200, envs=5).train()
    assert run.agent.trained_at == list(range(101, 201))


def test_without_replay_data_it_says_so_and_waits(tmp_path, capsys):
    Run(tmp_path, steps=100).train()
    shutil.rmtree(tmp_path / 'replay')
    run = Run(tmp_path, steps=200).train()
    assert run.agent.trained_at == list(range(100 + start_step(run) + 1, 201))
    out = capsys.readouterr().out
    assert 'Replay data are missing: 0 items; training waits for 8' in out
    assert 'training starts after 12 env steps' in out


def test_a_stop_before_training_begins(tmp_path, capsys):
    Run(tmp_path, steps=8).train()
    capsys.readouterr()
    run = Run(tmp_path, steps=40).train()
    out = capsys.readouterr().out
    assert 'training starts when the replay holds 8 items (now 4)' in out
    assert 'Replay data are missing' not in out
    assert run.agent.trained_at == list(range(13, 41))  # as without the stop


def test_a_cut_checkpoint_falls_back(tmp_path, capsys):
    Run(tmp_path, steps=50, keep=2).train()
    Run(tmp_path, steps=100, keep=2).train()
    newest = checkpoint.find(tmp_path)[0]
    (newest / 'agent.npz').write_bytes(b'cut')
    run = Run(tmp_path, steps=120, keep=2).train()
    assert run.agent.trained_at == list(range(51, 121))
    assert 'Warning' in capsys.readouterr().out


class Picky(Agent):
    """Notes what it is asked to load."""

    asked = None

    def load(self, data, regex=None):
        self.asked = regex
        super().load(data)


def test_from_checkpoint_takes_the_agent_alone(tmp_path):
    old = Run(tmp_path / 'old').train()
    new = Run(
        tmp_path / 'new', Picky and CounterEnv, Picky, from_checkpoint=str(tmp_path / 'old')
    )
    new.train()
    assert new.agent.updates == 2 * old.agent.updates
    assert (new.step, new.agent.trained_at[0], new.agent.asked) == (100, 13, None)


def test_from_checkpoint_regex_reaches_the_agent(tmp_path):
    Run(tmp_path / 'old').train()
    args = {'from_checkpoint': str(tmp_path / 'old/ckpt'), 'from_checkpoint_regex': 'enc/.*'}
    new = Run(tmp_path / 'new', make_agent=Picky, **args).train()
    assert new.agent.asked == 'enc/.*'


def test_a_resume_ignores_from_checkpoint(tmp_path, capsys):
    Run(tmp_path / 'old').train()
    args = {'from_checkpoint': str(tmp_path / 'old')}
    first = Run(tmp_path / 'new', **args).train()
    second = Run(tmp_path / 'new', steps=110, **args).train()
    assert second.agent.updates == first.agent.updates + 10
    assert 'from_checkpoint is not used' in capsys.readouterr().out


def test_files_put_into_the_replay_folder_are_used(tmp_path):
    Run(tmp_path / 'old').train()
    shutil.copytree(tmp_path / 'old/replay', tmp_path / 'new/replay')
    run = Run(tmp_path / 'new', steps=20).train()
    assert run.agent.trained_at == list(range(2, 21))


# Errors.


def test_a_wrong_from_checkpoint_shows_before_anything_is_built(tmp_path):
    run = Run(tmp_path / 'new', from_checkpoint=str(tmp_path / 'typo'))
    with pytest.raises(UserError, match=r'typo.*run\.from_checkpoint'):
        run.train()
    assert run.agent is None


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        ({'report_length': 5}, r'report of 5 .* longer than .* 4'),
        ({'consec_report': 3}, r'report of 6 .* longer than .* 4'),
        ({'capacity': 7}, r'holds 7 items at most.*one batch of 8.*replay\.size'),
        ({'envs': 0}, r'run\.envs'),
        ({'keep': 0}, r'run\.keep'),
        ({'train_ratio': math.inf}, r'run\.train_ratio'),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, args, message):
    with pytest.raises(UserError, match=message):
        Run(tmp_path, **args).train()


class Failing(CounterEnv):
    """Breaks at the 35th step of its life."""

    def step(self, action):
        if self.episode == 3 and self.step_index == 4:
            raise RuntimeError('the env broke')
        return super().step(action)


def test_an_error_surfaces_and_everything_is_closed(tmp_path):
    run = Run(tmp_path, Failing, envs=2)
    with pytest.raises(RuntimeError, match='the env broke'):
        run.train()
    assert [env.closed for env in run.envs] == [True, True]
    assert run.lines('scores.jsonl')[-1]['step'] == 60
    saved = checkpoint.read(tmp_path)  # all up to the step that failed
    assert (saved['step'], saved['agent']['updates']) == (70, run.agent.updates)
    again = Run(tmp_path, envs=2).train()
    assert (again.step, again.agent.trained_at[0]) == (100, 71)


def test_an_error_of_the_agent_saves_nothing(tmp_path):
    class Broken(Agent):
        def train(self, carry, data):
            if self.updates == 30:
                raise RuntimeError('the agent broke')
            return super().train(carry, data)

    with pytest.raises(RuntimeError, match='the agent broke'):
        Run(tmp_path, make_agent=Broken).train()
    assert checkpoint.read(tmp_path, ['step'])['step'] == 20  # after the first updates


def test_envs_in_processes_of_their_own(tmp_path):
    apart = Run(tmp_path / 'a', envs=2, steps=60, debug=False).train()
    here = Run(tmp_path / 'b', envs=2, steps=60).train()
    assert (apart.envs, len(here.envs)) == ([], 2)
    assert apart.agent.seen == here.agent.seen
    assert apart.agent.trained_at == here.agent.trained_at


@pytest.mark.parametrize('debug', [True, False])
def test_an_env_is_told_the_step_of_the_resume_and_its_restarts(tmp_path, debug):
    def make_env(index, step=0, attempt=0):
        with open(tmp_path / 'made', 'a') as file:
            file.write(f'{index} {step} {attempt}\n')
        return Failing(index) if index else CounterEnv(index)

    class Direct(Run):
        make_agent = lambda self: Agent(CounterEnv().obs_space, CounterEnv().act_space)

    for steps in (60, 160):
        run = Direct(tmp_path, make_env, envs=2, steps=steps, env_restarts=9, debug=debug)
        run.make_env = make_env
        run.args = run.args.update(train_ratio=0.0)
        run.train()
    made = sorted((tmp_path / 'made').read_text().splitlines())
    assert made == ['0 0 0', '0 60 0', '1 0 0', '1 60 0', '1 60 1']
