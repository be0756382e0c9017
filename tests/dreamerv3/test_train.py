"""The agent in the train loop, from the command line's config to files: repeats and resumes."""

import json

import numpy as np
import pytest

from dreamerv3 import config as configs
from dreamerv3 import factories
from embodied.checkpoint import checkpoint
from tests.learn import curve, games

FLAGS = {
    'jax.platform': 'cpu', 'jax.debug': True, 'jax.compute_dtype': 'float32',
    'agent.dyn.rssm': {'deter': 16, 'hidden': 8, 'stoch': 4, 'classes': 4, 'blocks': 4},
    r'.*\.units': 8, r'.*\.layers': 1, r'.*\.bins': 9, 'agent.imag_length': 3,
    'agent.opt.warmup': 10, 'batch_size': 4, 'batch_length': 8, 'report_length': 4,
    'run.envs': 1, 'run.train_ratio': 8, 'run.log_every': -1, 'run.report_every': -1,
    'run.save_every': 0, 'logger.timer': False, 'run.steps': 120,
}  # fmt: skip
CLOCKED = ('fps/', 'usage/', 'timer/', 'replay/ram_gb')


def train(folder, **flags):
    return curve.train(folder, {**FLAGS, **flags}, games.Catch)


def lines(folder):
    """Metrics that do not depend on the clock, line by line."""
    rows = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [{k: v for k, v in row.items() if not k.startswith(CLOCKED)} for row in rows]


def part(folder, name):
    return checkpoint.read(folder, [name])[name]


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    return folder, train(folder)


def test_same_seed_gives_the_same_losses_and_scores(run, tmp_path):
    folder, scores = run
    assert train(tmp_path / 'again') == scores
    assert lines(tmp_path / 'again') == lines(folder)
    losses = [x for x in lines(folder) if 'train/loss/policy' in x]
    assert len(losses) >= 5
    assert any('report/loss/dyn' in x for x in lines(folder))


def test_another_seed_gives_others(run, tmp_path):
    folder, _ = run
    train(tmp_path, seed=1)
    mine, other = (
        [x['train/loss/dyn'] for x in lines(f) if 'train/loss/dyn' in x]
        for f in (folder, tmp_path)
    )
    assert mine[0] != other[0]


def test_updates_are_exact(run):
    folder, _ = run
    # The 32nd item is there after 32 + 9 - 1 steps; from then on 1 update per 4 steps.
    assert part(folder, 'agent')['params']['opt/step'] == (120 - 40) // 4


def test_the_same_command_again_resumes(run, tmp_path):
    """Optimizer, normalisers and step as saved; no update is caught up."""
    train(tmp_path)
    before = {name: part(tmp_path, name) for name in ('agent', 'step', 'ratio')}
    train(tmp_path)
    after = {name: part(tmp_path, name) for name in ('agent', 'step', 'ratio')}
    assert after['step'] == before['step'] == 120
    assert after['ratio'] == before['ratio']
    for key, value in before['agent']['params'].items():
        np.testing.assert_array_equal(after['agent']['params'][key], value, err_msg=key)
    train(tmp_path, **{'run.steps': 140})
    after = part(tmp_path, 'agent')
    assert part(tmp_path, 'step') == 140
    assert after['params']['opt/step'] == (140 - 40) // 4
    assert after['params']['slowval/count'] == (140 - 40) // 4
    # The first update after the stop goes on from the counts and normalisers before it.
    updates = [x['train/opt/updates'] for x in lines(tmp_path) if 'train/opt/updates' in x]
    assert updates == sorted(updates)
    old, new = (p['params']['retnorm/stats/hi'] for p in (before['agent'], after))
    assert 0 < abs(new - old) < abs(old)


def test_four_environments_begin_differently_and_repeat(tmp_path):
    config = configs.load(['crafter'], {'logdir': str(tmp_path)})
    firsts = []
    for _ in range(2):
        envs = [factories.make_env(config, index) for index in range(4)]
        action = {'action': np.int32(0), 'reset': np.bool_(True)}
        firsts.append([env.step(action)['image'] for env in envs])
    np.testing.assert_array_equal(firsts[0], firsts[1])
    assert len({frame.tobytes() for frame in firsts[0]}) == 4


def test_a_planted_hard_sequence_has_a_high_priority(tmp_path):
    """The learner sends the loss of each step, where priorities are wanted."""
    from tests.dreamerv3.test_agent import make_agent, make_batch

    agent = make_agent()
    agent.model.config = agent.model.config.update(replay_priority=True)
    data = make_batch(agent)
    data['position'][3, 2] = 1e9
    _, out, metrics = agent.train(agent.init_train(12), data)
    priority = out['replay']['priority']
    assert priority.shape == (12, 4)
    # Step 0 is context: the planted step is number 1 of what is trained.
    assert np.unravel_index(priority.argmax(), priority.shape) == (3, 1)
    scales, names = (
        agent.model.scales,
        ('position', 'velocity', 'height', 'rew', 'con', 'dyn', 'rep'),
    )
    expected = sum(scales[k] * metrics[f'loss/{k}'] for k in names)
    np.testing.assert_allclose(priority.mean(), expected, rtol=1e-5)
