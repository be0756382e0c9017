"""Every key of the configuration is read by something, or said to have no effect."""

import ast
import pathlib

import elements
import jax
import numpy as np

from dreamerv3 import config as configs
from dreamerv3 import config_help, unused
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


def test_the_agent_reads_all_of_its_section():
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
    assert unread == set()


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
    assert all(config_help.find(key).later for key in unread)  # other values are refused


def started(line, tmp_path, monkeypatch, capsys):
    """What the start prints."""
    monkeypatch.setattr(cli, 'run', lambda *args: None)
    cli.main([*line.split(), '--logdir', str(tmp_path / 'run')])
    return capsys.readouterr().out.splitlines()


def test_a_key_without_effect_is_said_at_the_start(monkeypatch, capsys, tmp_path):
    out = started('--agent.repl_loss.slowtar True', tmp_path, monkeypatch, capsys)
    line = 'Warning: --agent.repl_loss.slowtar True has no effect: '
    assert [x for x in out if x.startswith(line)]
    configs.load()
    assert capsys.readouterr().out == ''


UNUSED = {
    'clock_addr': '', 'clock_port': '', 'ipv6': False, 'replay.priosignal': 'model',
    'agent.dyn.typ': 'rssm', 'agent.enc.typ': 'simple', 'agent.dec.typ': 'simple',
    'agent.repl_loss.slowtar': False,
}  # fmt: skip


def test_the_keys_of_the_reference_that_nobody_reads():
    assert unused.defaults() == UNUSED
    assert not {*UNUSED} & {*DEFAULTS}
    assert all(entry.why for entry in config_help.unused().values())


def test_all_of_them_are_accepted_as_flags_with_one_line(monkeypatch, capsys, tmp_path):
    line = ' '.join(f'--{key}={value}' for key, value in UNUSED.items())
    out = started(f'--configs debug {line}', tmp_path, monkeypatch, capsys)
    assert [x for x in out if 'without effect' in x] == [
        f'Not used any more, without effect: --{", --".join(UNUSED)}'
    ]


def test_a_config_that_an_earlier_version_saved_is_accepted_with_one_line(
    monkeypatch, capsys, tmp_path
):
    saved = ROOT / 'tests' / 'saved_runs' / 'ram' / 'config.yaml'
    assert {*UNUSED} <= {*configs.read_file(saved)}
    out = started(f'--config {saved}', tmp_path, monkeypatch, capsys)
    assert len([x for x in out if 'without effect' in x]) == 1
    config = configs.load(files=[saved])
    assert config.flat.keys() == DEFAULTS.keys()


def test_regular_expressions_that_match_them_too_say_nothing(capsys):
    config = configs.load(overrides={r'.*loss\.slow.*g': 0.5, r'.*c\.typ': 'simple'})
    assert config.agent.repl_loss.slowreg == 0.5
    assert capsys.readouterr().out == ''
