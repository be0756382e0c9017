"""A run that cannot go on in its logdir is refused at once, in the user's words."""

import functools
import re

import elements
import jax
import numpy as np
import pytest

from dreamerv3 import bounds, resume
from dreamerv3 import config as configs
from dreamerv3 import main as cli
from dreamerv3.agent import Dreamer
from embodied import UserError
from embodied.jax import packing
from embodied.jax.runtime import names

from . import golden

BASE = {
    r'.*\.units': 8, r'.*\.depth': 4, r'.*\.mults': [2, 4], 'agent.dec.simple.bspace': 4,
    'agent.dyn.rssm': {'deter': 8, 'hidden': 4, 'stoch': 2, 'classes': 4, 'blocks': 4},
    r'.*\.bins': 9, 'agent.opt.anneal': 5000,
}  # fmt: skip


def begun(folder, *blocks, **flags):
    """A folder with the config of a run and, as far as one can see, its checkpoints."""
    (folder / 'ckpt').mkdir(parents=True)
    configs.save(configs.load(blocks, {'logdir': str(folder), **flags}))
    return folder


@pytest.fixture
def refused(monkeypatch, capsys):
    """The message of a start that is refused before anything is made."""

    def refuse(line):
        monkeypatch.setattr(cli, 'run', lambda *args: pytest.fail('it started'))
        with pytest.raises(SystemExit) as caught:
            cli.main(line.split())
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert 'DreamerV3' not in out
        assert len(err.splitlines()) == 1
        return err

    return refuse


@pytest.mark.parametrize('script', resume.SCRIPTS)
def test_another_task(script, tmp_path, refused):
    begun(tmp_path, task='gym_CartPole-v1')
    err = refused(f'--configs crafter --logdir {tmp_path} --script {script}')
    assert 'holds another run: task gym_CartPole-v1 there, crafter_reward here.' in err
    assert 'another --logdir' in err
    assert f'--run.from_checkpoint {tmp_path}' in err


def test_other_sizes(tmp_path, refused):
    begun(tmp_path, 'crafter')
    err = refused(f'--configs crafter size1m --logdir {tmp_path}')
    assert 'agent.dyn.rssm.deter 8192 there, 512 here' in err
    assert re.search(r' \(and \d+ more\)\. Take', err)
    assert f'--config {tmp_path}/config.yaml' in err


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('--env.crafter.size 96 96', 'env.crafter.size 64,64 there, 96,96 here.'),
        ('--random_agent True', 'random_agent False there, True here.'),
    ],
)
def test_other_environments_or_agents(line, words, tmp_path, refused):
    begun(tmp_path, 'crafter')
    assert words in refused(f'--configs crafter --logdir {tmp_path} {line}')


@pytest.mark.parametrize('place', ['', 'ckpt'])
@pytest.mark.parametrize('script', ['train', 'eval_only'])
def test_the_agent_of_another_run_with_other_sizes(script, place, tmp_path, refused):
    source = begun(tmp_path / 'old', 'crafter') / place
    line = f'--configs crafter size1m --script {script} --logdir {tmp_path}/new'
    err = refused(f'{line} --run.from_checkpoint {source}')
    assert f'The agent of {source} does not fit: agent.dyn.rssm.deter 8192 there' in err
    assert f'--config {tmp_path}/old/config.yaml' in err


@pytest.mark.parametrize(
    'line',
    [
        '--logdir {old}',
        '--logdir {old} --seed 3 --agent.opt.lr 1e-3 --batch_size 8 --run.envs 4',
        '--logdir {old} --env.atari.size 64 64 --env.dmc.image False',  # of other suites
        '--logdir {new} --run.from_checkpoint {old}',
        '--logdir {new} --run.from_checkpoint {old} --task pinpad_three',
        '--logdir {new} --run.from_checkpoint {old} --task pinpad_three --script eval_only',
        '--logdir {new} --run.from_checkpoint {old} --configs size1m '
        '--run.from_checkpoint_regex (rew|con)/.*',
        '--logdir {old} --script parallel_envs --task pinpad_three',
    ],
)
def test_what_fits_goes_on(line, tmp_path):
    old = begun(tmp_path / 'old', 'crafter')
    line = line.format(old=old, new=tmp_path / 'new')
    resume.check(configs.resolve(['--task', 'crafter_reward', *line.split()]))


@pytest.mark.parametrize('content', [None, 'x: [', '{}', 'seed: 3'])
def test_a_config_that_says_nothing_stops_nothing(content, tmp_path):
    (tmp_path / 'ckpt').mkdir()
    if content is not None:
        (tmp_path / 'config.yaml').write_text(content)
    resume.check(configs.resolve(['--logdir', str(tmp_path)]))


def test_a_config_alone_stops_nothing(tmp_path):
    """As after a start that ended before it saved anything."""
    begun(tmp_path, 'crafter')
    (tmp_path / 'ckpt').rmdir()
    resume.check(configs.resolve(['--logdir', str(tmp_path)]))


def arrays(**flags):
    """Names and shapes of the arrays that a checkpoint holds."""
    obs, act = golden.spaces('mixed')
    obs = {**obs, 'image': elements.Space(np.uint8, (16, 16, 3))}
    model = Dreamer(obs, act, golden.agent_config({**BASE, **flags}))
    template = jax.eval_shape(model.init, jax.random.key(0))
    flat = {k: np.broadcast_to(0, v.shape) for k, v in names.flatten(template).items()}
    return {k: v.shape for k, v in packing.apart(flat, packing.layouts(template)).items()}


@functools.cache
def plain():
    return arrays()


def changed(key, value):
    """Another value that the key may have."""
    if isinstance(value, bool):
        return not value
    if choices := bounds.choices(key):
        return next((x for x in choices if x != value), value)
    if isinstance(value, (int, float)):
        return 2 * value if isinstance(value, int) else value / 2
    return value  # activations, norms and the like may or may not change arrays


def test_keys_that_are_no_sizes_change_no_array():
    config = configs.load(overrides=BASE).flat
    others = {
        k: changed(k, v)
        for k, v in config.items()
        if k.startswith('agent.') and not resume.SIZES.fullmatch(k)
    }
    assert sum(others[k] != config[k] for k in others) > 40
    assert arrays(**others) == plain()


@pytest.mark.parametrize(
    'key',
    [
        'agent.dyn.rssm.deter', 'agent.dyn.rssm.absolute', 'agent.enc.simple.kernel',
        'agent.value.units', 'agent.opt.momentum', 'agent.advnorm.impl',
    ],
)  # fmt: skip
def test_sizes_change_arrays(key):
    assert resume.SIZES.fullmatch(key)
    value = configs.load(overrides=BASE).flat[key]
    assert arrays(**{key: changed(key, value)}) != plain()


def test_the_message_names_three_differences_at_most(tmp_path):
    begun(tmp_path, 'crafter')
    with pytest.raises(UserError) as caught:
        resume.check(configs.load(['crafter', 'size1m'], {'logdir': str(tmp_path)}))
    assert str(caught.value).count(' there, ') == resume.MOST
