"""Runs of the real agent, tiny: extreme rewards, evaluation, checkpoints that do not fit."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys

import elements
import numpy as np
import pytest

import dreamerv3
import embodied
from dreamerv3 import config as configs
from dreamerv3 import main as cli
from embodied import wrappers
from embodied.checkpoint import checkpoint

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    '--configs debug --logger.outputs jsonl --run.usage.psutil 0 --run.envs 1 '
    '--run.report_every 0 --run.save_every 900 --jax.compute_dtype float32'
)


class Env(embodied.Env):
    """Episodes of 20 steps. reward: the action, or with `swing` 1e6 and -1e6 in turn."""

    def __init__(self, seed=0, swing=False, actions=3):
        self.rng = np.random.default_rng(seed)
        self.swing, self.actions = swing, actions
        self.count = 20

    @property
    def obs_space(self):
        flags = ('is_first', 'is_last', 'is_terminal')
        return {
            'vector': elements.Space(np.float32, (3,)),
            'reward': elements.Space(np.float32),
            **{key: elements.Space(bool) for key in flags},
        }

    @property
    def act_space(self):
        number = elements.Space(np.int32, (), 0, self.actions)
        return {'action': number, 'reset': elements.Space(bool)}

    def step(self, action):
        self.count = 0 if action['reset'] or self.count >= 19 else self.count + 1
        sign = -1 if self.count % 2 else 1
        return {
            'vector': self.rng.normal(size=3).astype(np.float32),
            'reward': np.float32(1e6 * sign if self.swing else action['action']),
            'is_first': np.bool_(self.count == 0),
            'is_last': np.bool_(self.count == 19),
            'is_terminal': np.bool_(False),
        }


def start(logdir, flags, **kwargs):
    config = configs.resolve([*FLAGS.split(), '--logdir', str(logdir), *flags.split()])
    cli.start(config, lambda index: wrappers.wrap(Env(index, **kwargs)))


@pytest.fixture(scope='module')
def swung(tmp_path_factory):
    """A run of 500 updates under rewards that alternate between 1e6 and -1e6."""
    logdir = tmp_path_factory.mktemp('swung')
    start(logdir, '--run.steps 590 --run.train_ratio 80 --run.log_every -1', swing=True)
    return logdir


def test_extreme_rewards_keep_every_metric_finite(swung):
    updates = checkpoint.read(swung, ['agent'])['agent']['counters']['updates']
    assert updates >= 500
    text = (swung / 'metrics.jsonl').read_text()
    lines = [json.loads(x) for x in text.splitlines()]
    trained = [line for line in lines if 'train/opt/loss' in line]
    assert len(trained) >= 50
    assert not [(k, x['step']) for x in trained for k, v in x.items() if v is None]
    saved = checkpoint.read(swung, ['agent'])['agent']['params']
    assert not [k for k, v in saved.items() if not np.isfinite(v).all()]


def test_eval_only_of_a_copied_checkpoint_scores_as_load_does(swung, tmp_path, capsys):
    copy = tmp_path / 'copy'
    shutil.copytree(checkpoint.find(swung)[0], copy)
    flags = f'--script eval_only --run.from_checkpoint {copy} --run.episodes 3 --seed 5'
    start(tmp_path / 'eval', flags)
    assert ', 3 episodes' in capsys.readouterr().out
    lines = (tmp_path / 'eval' / 'scores.jsonl').read_text().splitlines()
    found = [json.loads(line)['episode/score'] for line in lines]

    env, actor, scores = wrappers.wrap(Env(0)), dreamerv3.load(copy, seed=5), []
    action = {'action': np.int32(0), 'reset': np.bool_(True)}
    score = 0.0
    while len(scores) < 3:
        obs = env.step(action)
        score = float(obs['reward']) if obs['is_first'] else score + float(obs['reward'])
        act = actor.act(obs)['action']
        act = act * 0 if obs['is_last'] else act  # as the driver does
        action = {'action': act, 'reset': obs['is_last']}
        scores += [score] if obs['is_last'] else []
    assert found == scores
    assert len(set(scores)) > 1


@pytest.mark.parametrize(
    ('flags', 'actions', 'words'),
    [
        ('--agent.policy.units 16', 3, r'other sizes: agent.policy.units 8 there, 16 here'),
        ('--agent.policy.norm layer', 3, r'does not fit the model.*norm/shift: missing'),
        ('', 5, r"another environment: 'action' 3 classes there, 5 classes here\."),
    ],
)
def test_another_model_or_action_space_is_refused_before_training(
    swung, tmp_path, flags, actions, words
):
    logdir = tmp_path / 'run'
    shutil.copytree(swung, logdir)
    before = {x: x.read_bytes() for x in logdir.glob('*.*')}
    with pytest.raises(embodied.UserError) as caught:
        start(logdir, f'--run.steps 1000 {flags}', actions=actions)
    message = str(caught.value)
    assert caught.match(words)
    assert len(message.splitlines()) <= 5
    assert {x: x.read_bytes() for x in logdir.glob('*.*')} == before


def test_the_agent_of_a_reference_run_is_taken_over(tmp_path, capsys):
    source = ROOT / 'tests' / 'golden' / 'reference_run'
    flags = f'--configs crafter debug --run.steps 0 --run.from_checkpoint {source}'
    flags = [*FLAGS.split(), *flags.split(), '--logdir', str(tmp_path)]
    with pytest.raises(SystemExit) as caught:
        cli.main(flags)
    assert caught.value.code == 2
    assert '--run.trust_pickle True' in capsys.readouterr().err
    cli.main([*flags, '--run.trust_pickle', 'True'])
    assert f'Loading the agent from {source}' in capsys.readouterr().out
    regex = ['--run.from_checkpoint_regex', r'(enc|dyn)/.*']
    cli.main([*flags, '--run.trust_pickle', 'True', *regex])
    out = capsys.readouterr().out
    for words in (r"matched '(enc|dyn)/.*': ", 'new, as initialised: ', 'dropped from the '):
        assert words in out


def test_a_signal_while_it_compiles_ends_it(tmp_path):
    line = f'{ROOT}/dreamerv3/main.py {FLAGS} --task dummy_disc --logdir {tmp_path}'
    command = [sys.executable, *line.split(), '--jax.compilation_cache', '']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = ''
        for line in process.stdout:
            out += line
            if 'training starts after' in line:
                break
        process.send_signal(signal.SIGTERM)
        out += process.stdout.read()
        assert process.wait() == 0
    assert 'Ended without saving' in out
    assert not (tmp_path / 'ckpt').exists()
