"""Every key of the configuration is read by something, or said to have no effect."""

import ast
import pathlib

import elements
import jax
import numpy as np
import pytest

from dreamerv3 import checks, usage
from dreamerv3 import config as configs
from dreamerv3 import main as cli
from dreamerv3.agent import Dreamer

from . import golden

ROOT = pathlib.Path(__file__).parents[2]
TABLES = {ROOT / 'dreamerv3' / x for x in ('checks.py', 'usage.py')}  # name, but do not read
DEFAULTS = configs.blocks()['defaults']


class Reads:
    """A config that notes which keys are asked for."""

    def __init__(self, config, found, prefix=''):
        self._config, self._found, self._prefix = config, found, prefix

    def __getitem__(self, key):
        value = self._config[key]
        name = f'{self._prefix}{key}'
        if isinstance(value, elements.Config):
            return Reads(value, self._found, f'{name}.')
        self._found.add(name)
        return value

    __getattr__ = __getitem__

    def keys(self):
        return self._config.keys()

    def items(self):
        return [(key, self[key]) for key in self.keys()]


def test_the_agent_reads_all_of_its_section_but_what_is_said_to_be_unread():
    image = elements.Space(np.uint8, (16, 16, 3))
    obs, act = golden.spaces('mixed')
    config = golden.agent_config({
        r'.*\.units': 8, r'.*\.depth': 4, r'.*\.mults': [2, 4], 'agent.dec.simple.bspace': 4,
        'agent.dyn.rssm': {'deter': 8, 'hidden': 4, 'stoch': 2, 'classes': 4, 'blocks': 4},
        'agent.imag_length': 2, 'agent.opt.wd': 0.1,
    })  # fmt: skip
    found = set()
    model = Dreamer({**obs, 'image': image}, act, Reads(config, found))

    def update(data):
        state = model.init(jax.random.key(0))
        _, carry, _, _ = model.train(state, model.init_train(2), data, jax.random.key(1))
        return model.report(state, carry, data, jax.random.key(2))[1]

    spaces = {**model.obs_space, **act, **model.ext_space}
    shape = lambda space: jax.ShapeDtypeStruct((2, 5, *space.shape), space.dtype)
    jax.eval_shape(update, {k: shape(space) for k, space in spaces.items()})
    unread = {f'agent.{k}' for k in config.flat if f'agent.{k}' in DEFAULTS and k not in found}
    kinds = {'agent.dyn.typ', 'agent.enc.typ', 'agent.dec.typ'}  # each has one value
    assert unread == {*checks.UNREAD, *kinds}


def words(path):
    """Attributes, parameters, keywords and texts of a source file."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        for field in ('attr', 'arg', 'value'):
            if isinstance(word := getattr(node, field, None), str):
                yield word.rpartition('.')[2]


def test_every_other_key_is_named_where_it_can_be_read():
    files = {*ROOT.glob('dreamerv3/*.py'), *ROOT.glob('embodied/**/*.py')} - TABLES
    named = {word for path in files for word in words(path)}
    unread = {key for key in DEFAULTS if key.rpartition('.')[2] not in named}
    assert unread <= {*checks.FIXED}  # other values of which are refused


def test_a_key_without_effect_is_said_at_the_start(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, 'run', lambda *args: None)
    cli.main(['--agent.repl_loss.slowtar', 'True', '--logdir', str(tmp_path)])
    line = 'Warning: --agent.repl_loss.slowtar True has no effect: '
    assert [x for x in capsys.readouterr().out.splitlines() if x.startswith(line)]
    assert usage.ignored(configs.load()) == ''


@pytest.mark.parametrize('key', checks.UNREAD)
def test_its_meaning_says_so_too(key):
    assert 'no effect' in usage.meaning(key)
