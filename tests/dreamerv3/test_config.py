"""Blocks, regular expressions, flags, and what a config must satisfy."""

import os
import pickle
import re
import sys

import elements
import numpy as np
import pytest

from dreamerv3 import checks, config_help, paths, resume
from dreamerv3 import config as configs
from embodied import UserError


def resolve(line: str, **environ: str) -> elements.Config:
    return configs.resolve(line.split(), environ)


def test_every_block_applies_and_checks():
    for name in configs.block_names():
        config = configs.load([name])
        assert config.flat.keys() == configs.blocks()['defaults'].keys()


def test_types_of_defaults_survive_blocks():
    defaults = configs.load().flat
    for name in configs.block_names():
        changed = configs.load([name]).flat
        assert {k: type(v) for k, v in changed.items()} == {
            k: type(v) for k, v in defaults.items()
        }


def test_debug_block_reaches_every_part():
    agent = configs.load(['debug']).agent
    assert agent.rewhead.bins == agent.value.bins == 5
    assert agent.dyn.rssm.deter == 8
    assert agent.enc.simple.depth == agent.dec.simple.depth == 2
    assert agent.policy.layers == agent.enc.simple.layers == 1
    assert agent.dyn.rssm.imglayers == 2  # ends in layers, but is another key


def test_blocks_apply_in_order():
    assert configs.load(['size1m', 'size50m']).agent.policy.units == 512
    assert configs.load(['size50m', 'size1m']).agent.policy.units == 64


def test_size_block_sets_rssm_depth_and_units():
    agent = configs.load(['size12m']).agent
    rssm = agent.dyn.rssm
    assert (rssm.deter, rssm.hidden, rssm.classes) == (2048, 256, 16)
    assert (agent.enc.simple.depth, agent.dec.simple.depth) == (16, 16)
    assert {agent[k].units for k in ('policy', 'value', 'rewhead', 'conhead')} == {256}


def test_flags_override_blocks():
    config = resolve('--configs crafter debug --batch_size 3 --run.steps=1e3')
    assert config.task == 'crafter_reward'
    assert config.batch_size == 3
    assert config.run.steps == 1000.0


def test_configs_flag_may_come_last_or_twice_or_with_commas():
    # The default logdir holds the time, which may pass a second in between.
    expected = resolve('--logdir x --configs crafter debug --seed 5')
    assert resolve('--seed 5 --logdir x --configs crafter --configs debug') == expected
    assert resolve('--seed 5 --logdir x --configs crafter,debug') == expected


def test_regex_flag_sets_all_matches_and_later_flags_win():
    config = resolve(r'--.*\.units 7 --agent.policy.units 9')
    assert config.agent.value.units == 7
    assert config.agent.policy.units == 9
    assert resolve(r'--agent.policy.units 9 --.*\.units 7').agent.policy.units == 7


@pytest.mark.parametrize(
    ('text', 'value'),
    [('true', True), ('1', True), ('YES', True), ('False', False), ('0', False), ('no', False)],
)
def test_bools(text, value):
    assert resolve(f'--random_agent {text}').random_agent is value


def test_whole_numbers_may_be_scientific():
    assert resolve('--run.envs 1e1').run.envs == 10
    assert resolve('--seed 9007199254740993').seed == 9007199254740993


def test_lists_take_spaces_commas_and_brackets():
    for text in ('32 48', '32,48', '[32,48]', '[32, 48]'):
        assert resolve(f'--env.crafter.size {text}').env.crafter.size == (32, 48)
    assert resolve('--logger.outputs jsonl').logger.outputs == ('jsonl',)


def test_negative_numbers_are_values():
    assert resolve('--run.save_every -1').run.save_every == -1.0


def test_infinite_priority_is_a_number():
    assert configs.load().replay.prio.initial == np.inf
    assert resolve('--replay.prio.initial inf').replay.prio.initial == np.inf


def test_timestamp_and_home_are_filled_in():
    logdir = resolve('--logdir ~/runs/{timestamp}').logdir
    assert re.fullmatch(r'/.*/runs/\d{8}T\d{6}', logdir)


def test_job_index_overrides_replica():
    assert resolve('--replica 1', JOB_COMPLETION_INDEX='0').replica == 0
    assert resolve('', JOB_COMPLETION_INDEX='').replica == 0
    with pytest.raises(UserError, match='--replica 3: several learner processes come'):
        resolve('', JOB_COMPLETION_INDEX='3')


def test_config_crosses_processes():
    config = configs.load(['debug'])
    assert pickle.loads(pickle.dumps(config)) == config


BAD = {
    # arguments: what the message must name
    '--bathc_size 3': ('--bathc_size', '--batch_size'),
    '--depth 3': ('--depth', '--agent.enc.simple.depth'),
    '--configs crafer': ('crafer', 'crafter', '--configs'),
    '--configs defaults': ('defaults',),
    '--task atri_pong': ('atri', 'atari'),
    '--task dummy_dics': ('dummy_dics', 'dummy_disc'),
    '--task dummy': ('--task', 'dummy_disc'),
    '--script trian': ('trian', 'train'),
    '--script paralel': ('paralel', 'Nearest:', 'parallel'),
    '--batch_size abc': ('--batch_size', 'abc', 'whole number'),
    '--batch_size 1.5': ('--batch_size', '1.5', 'whole number'),
    '--batch_size 1e400': ('--batch_size', '1e400', 'whole number'),
    '--batch_size 0': ('--batch_size', 'at least 1'),
    '--batch_size': ('--batch_size', 'none'),
    '--batch_size 1 2': ('--batch_size', '1 2'),
    '--run.steps nan': ('--run.steps', 'nan'),
    '--run.debug maybe': ('--run.debug', 'maybe', 'true or false'),
    '--env.crafter.size 64': ('--env.crafter.size', '64'),
    '--env.crafter.size 64 x': ('--env.crafter.size', 'x'),
    '--logger.outputs': ('--logger.outputs', 'at least one'),
    '--logger.outputs wandbb': ('wandbb', 'jsonl', 'Nearest: wandb'),
    '--logger.filter (': ('--logger.filter', 'regular expression'),
    '--*.depth 3': ('--*.depth', 'regular expression'),
    '--.*nothing 3': ('--.*nothing', 'No key'),
    '--agent.opt 3': ('--agent.opt', '--agent.opt.lr'),
    '--agent.dyn.rssm.blocks 3': ('--agent.dyn.rssm.blocks', '8192'),
    '--run.batch_size 3': ('--run.batch_size', 'Nearest: --batch_size.'),
    r'--.*\.unitz 3': (r'--.*\.unitz', 'Nearest: units'),
    '--logger.outputs jsnol': ('jsnol', 'Nearest: jsonl'),
    '--config': ('--config', 'YAML'),
    '--config /nowhere.yaml': ('/nowhere.yaml', 'No such file'),
    '--config crafter': ('crafter', '--configs crafter'),
    '--config .': ('--config .', 'directory'),
    '--ipv6 yes': ('--ipv6', 'later version'),
    '--agent.dyn.typ gru': ("--agent.dyn.typ takes rssm; found 'gru'.",),
    '--clock_addr a:1': ('--clock_addr a:1', 'later version'),
    '--ipv5 yes': ('Unknown flag --ipv5. See',),
    '--jax.platform cup': ('--jax.platform', 'cup', 'cpu'),
    '--replay.storage tape': ('--replay.storage', 'tape', 'disk'),
    '--report_length 65': ('--report_length', '65', '64'),
    '--consec_report 3': ('consec_report', '96'),
    '--replay.size 1000': ('--replay.size', '1000', '1024'),
    '--replay.fracs.uniform 0.5': ('--replay.fracs', 'sum to 1'),
    '--replay.fracs.uniform 0.5 --replay.fracs.recency 0.5 --jax.compute_dtype float16': (
        '--replay.fracs.uniform 0.5',
        '--jax.compute_dtype',
        'float32',
        'overflow',
    ),
    '--replay.prio.maxfrac 1.5': ('--replay.prio.maxfrac', '1.5'),
    '--replay.prio.exponent -1': ('--replay.prio.exponent', 'at least 0'),
    '--replay.recexp -1': ('--replay.recexp', 'at least 0'),
    '--replicas 2': ('--replicas 2', 'several learner processes', 'later version'),
    '--jax.coordinator_address a:1': ('--jax.coordinator_address', 'later version'),
    '--run.actor_threads 0': ('--run.actor_threads must be at least 1',),
    '--script parallel --run.replay_addr host': ('--run.replay_addr', "'host'", 'HOST:PORT'),
    '--script parallel_envs --run.actor_addr a:b': ('--run.actor_addr', "'a:b'", 'HOST:PORT'),
    '--script parallel_env --run.envs 2 --run.eval_envs 1 --replica 3': (
        '--replica 3',
        '2 + 1',
        'count from 0',
    ),
    '--run.steps inf': ('--run.steps', 'finite', '1e10', 'inf'),
    '--run.steps -1': ('--run.steps', 'at least 0'),
    '--run.duration -1': ('--run.duration', 'at least 0'),
    '--replay.size inf': ('--replay.size', 'finite', 'inf'),
    '--agent.horizon 1': ('--agent.horizon', 'at least 2'),
    '--agent.dyn.rssm.stoch 0': ('--agent.dyn.rssm.stoch', 'at least 1'),
    '--agent.dyn.rssm.classes 0': ('--agent.dyn.rssm.classes', 'at least 1'),
    '--agent.dyn.rssm.deter 0': ('--agent.dyn.rssm.deter', 'at least 1'),
    '--agent.dyn.rssm.hidden 0': ('--agent.dyn.rssm.hidden', 'at least 1'),
    '--agent.value.bins 1': ('--agent.value.bins', 'at least 2'),
    '--agent.rewhead.bins 1': ('--agent.rewhead.bins', 'at least 2'),
    '--batch_length 1 --report_length 1': ('--batch_length 1', '--agent.repval_loss False'),
    '--jax.mock_devices -1': ('--jax.mock_devices', 'at least 0'),
    '--logdir s3://bucket/run': ('--logdir', 's3://'),
    '--run.from_checkpoint /nowhere/ckpt': ('--run.from_checkpoint', '/nowhere/ckpt'),
    '--run.from_checkpoint . --random_agent 1': ('--random_agent', 'nothing to load'),
    'stray': ('stray', '--task'),
}


@pytest.mark.parametrize('line', BAD)
def test_bad_input_is_one_short_message(line):
    with pytest.raises(UserError) as caught:
        resolve(line)
    message = str(caught.value)
    assert len(message.splitlines()) <= 5
    assert all(word in message for word in BAD[line]), message


def test_bad_job_index():
    with pytest.raises(UserError, match='--replica'):
        resolve('', JOB_COMPLETION_INDEX='first')


def test_overrides_keep_types_strict():
    with pytest.raises(UserError, match='whole number'):
        configs.load(overrides={'batch_size': True})
    with pytest.raises(UserError, match='text'):
        configs.load(overrides={'task': None})


def test_every_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'venv').mkdir()
    (tmp_path / 'venv' / 'python').symlink_to(sys.executable)
    (tmp_path / 'old').mkdir()
    line = (
        '--logdir runs/{timestamp} --run.from_checkpoint ./old --run.env_python venv/python '
        '--jax.compilation_cache ~/cache'
    )
    config = resolve(line)
    assert config.logdir.startswith(f'{tmp_path}/runs/20')
    assert config.run.from_checkpoint == f'{tmp_path}/old'
    assert config.run.env_python == f'{tmp_path}/venv/python'
    assert config.jax.compilation_cache == os.path.expanduser('~/cache')
    # What is no path, or none here, stays.
    config = resolve('--jax.compilation_cache= --run.env_python python3 --logdir a/../b')
    assert config.run.from_checkpoint == config.jax.compilation_cache == ''
    assert config.run.env_python == 'python3'
    assert config.logdir == f'{tmp_path}/b'


def test_no_key_that_may_be_a_path_is_forgotten():
    """Others name no file: blocks, tasks, labels, addresses."""
    texts = {k for k, v in configs.load().flat.items() if isinstance(v, str)}
    known = re.compile(
        r'agent\..*|jax\.(platform|compute_dtype|.*_mesh|coordinator_address)|method|'
        r'env\..*\.(actions|lives|aggregate|resize|info)|logger\.(filter|user)|replay\.\w+|script|'
        r'run\.(.*_addr|bind|from_checkpoint_regex)|task'
    )
    assert {x for x in texts if not known.fullmatch(x)} == {*paths.keys()}


def test_old_paths_are_no_changes(tmp_path, monkeypatch):
    """A config.yaml of before may hold them as they were typed."""
    monkeypatch.chdir(tmp_path)
    config = resolve('--logdir run --configs debug')
    configs.save(config.update({'logdir': 'run', 'jax.compilation_cache': '~/.cache/a'}))
    assert resume.changes(config.update({'jax.compilation_cache': '/b'})) == [
        f'jax.compilation_cache: {os.path.expanduser("~/.cache/a")} -> /b'
    ]


def test_logdir_that_is_a_file(tmp_path):
    path = tmp_path / 'file'
    path.write_text('')
    with pytest.raises(UserError, match='is a file'):
        resolve(f'--logdir {path}')
    with pytest.raises(UserError, match='Cannot write'):
        configs.save(configs.load(overrides={'logdir': str(path / 'below')}))


def test_saved_config_loads_and_an_earlier_one_is_kept(tmp_path):
    first = configs.load(['debug'], {'logdir': str(tmp_path), 'seed': 1})
    second = configs.load(['debug'], {'logdir': str(tmp_path), 'seed': 2})
    path = configs.save(first)
    assert elements.Config.load(path) == first
    configs.save(first)
    assert sorted(x.name for x in tmp_path.iterdir()) == ['config.yaml']
    configs.save(second)
    assert elements.Config.load(path) == second
    (kept,) = tmp_path.glob('config-*.yaml')
    assert elements.Config.load(kept) == first


def test_files_apply_in_order_between_blocks_and_flags(tmp_path):
    one, two = tmp_path / 'one.yaml', tmp_path / 'two.yaml'
    one.write_text('batch_size: 3\nseed: 4\nrun: {debug: no, steps: 1e3}\n')
    two.write_text("seed: 5\n'.*\\.units': 7\nlogger.outputs: [jsonl]\n")
    config = resolve(f'--config {one} --batch_length 9 --config={two} --configs debug')
    assert (config.batch_size, config.batch_length, config.seed) == (3, 9, 5)
    assert (config.run.debug, config.run.steps) == (False, 1000.0)
    assert config.agent.policy.units == config.agent.value.units == 7
    assert config.logger.outputs == ('jsonl',)
    assert resolve(f'--config {one} {two} --seed 6').seed == 6


def test_a_saved_config_is_such_a_file(tmp_path):
    first = configs.load(['crafter', 'size1m'], {'logdir': str(tmp_path), 'seed': 1})
    path = configs.save(first)
    assert configs.load(files=[path]) == first


@pytest.mark.parametrize('place', ['', 'ckpt', 'ckpt/stamp', 'ckpt/agent/stamp'])
def test_eval_only_alone_takes_the_config_of_the_run(place, tmp_path, capsys):
    run = tmp_path / 'run'
    (run / place).mkdir(parents=True)
    (tmp_path / 'config.yaml').write_text('seed: 9')  # of nothing that is asked for
    configs.save(configs.load(['size1m'], {'logdir': str(run), 'seed': 3}))
    line = f'--script eval_only --run.from_checkpoint {run / place}'
    config = resolve(f'{line} --batch_size 2')
    assert (config.seed, config.agent.policy.units, config.batch_size) == (3, 64, 2)
    assert config.script == 'eval_only'
    assert not config.logdir.startswith(str(tmp_path))
    assert f'Config from {run}/config.yaml' in capsys.readouterr().out
    assert resolve(f'{line} --configs size12m').seed == 0
    assert resolve(line.replace('--script eval_only', '--script train')).seed == 0


def test_eval_only_of_a_checkpoint_alone_takes_the_flags(tmp_path):
    (tmp_path / 'copy').mkdir()
    (tmp_path / 'config.yaml').write_text('seed: 9')
    line = f'--script eval_only --run.from_checkpoint {tmp_path}/copy'
    assert resolve(line).seed == 0


@pytest.mark.parametrize(
    ('flags', 'steps'),
    [
        ('', 300),
        ('--run.episodes 30', 1e10),
        ('--run.episodes 30 --run.steps 70', 70),
        (r'--run.episodes 30 --run\.step.* 70', 70),
        ('--run.episodes 30 --configs atari100k', 1e10),
        ('--run.episodes 30 --config {0}/own.yaml', 90),
        ('--run.episodes 30 --config {0}/run/config.yaml', 1e10),
        ('--run.episodes 30 --config {0}/run/config.yaml --script train', 300),
    ],
)
def test_steps_of_the_training_do_not_end_an_evaluation_by_episodes(flags, steps, tmp_path):
    run = tmp_path / 'run'
    (run / 'ckpt').mkdir(parents=True)
    configs.save(configs.load([], {'logdir': str(run), 'run.steps': 300}))
    (tmp_path / 'own.yaml').write_text('{script: eval_only, run: {steps: 90}}')
    line = f'--script eval_only --run.from_checkpoint {run} {flags.format(tmp_path)}'
    assert resolve(line).run.steps == steps


BAD_FILES = {
    'batch_sizes: 3': ('--batch_sizes', '--batch_size'),
    'batch_size: many': ('--batch_size', 'many', 'whole number'),
    'batch_size:': ('--batch_size', 'None', 'whole number'),
    'task: 2020-01-01': ('--task', 'text'),
    'run: {debug: maybe}': ('--run.debug', 'maybe', 'true or false'),
    '1: 2': ('--1',),
    'agent: 3': ('--agent', 'group'),
    '- batch_size': ('keys and values', 'list'),
    '': ('keys and values', 'NoneType'),
    'run: {steps: 3\nseed: 1': ('line 2', 'not valid YAML'),
    'seed: 1\nseed: 2': ('line 2', 'not valid YAML', 'seed'),
    b'seed: \xff\xfe': ('not valid YAML',),
    'seed: ' + 20_000 * '[' + 20_000 * ']': ('nests too deeply',),
    'run: ' + 600 * '{a: ' + '1' + 600 * '}': ('nests too deeply',),
}


@pytest.mark.parametrize('content', BAD_FILES, ids=lambda x: str(x)[:20])
def test_errors_in_a_file_name_it(content, tmp_path):
    path = tmp_path / 'my.yaml'
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        resolve(f'--config {path}')
    message = str(caught.value)
    assert len(message.splitlines()) <= 5
    assert all(word in message for word in ('--config', str(path), *BAD_FILES[content])), (
        message
    )


def test_every_key_has_one_entry_and_no_entry_lacks_a_key():
    keys, used = configs.blocks()['defaults'], set()
    for key in keys:
        assert config_help.find(key).meaning, key
        plain = [key] if key in config_help.entries() else []
        regexes = [
            name
            for name in config_help.entries()
            if configs.REGEX.search(name) and re.fullmatch(name, key)
        ]
        assert len(regexes) < 2, (key, regexes)
        assert plain or regexes, key
        used |= {*(plain or regexes)}
    assert used == {*config_help.entries()}
    with pytest.raises(KeyError, match='nothing'):
        config_help.find('nothing')


def test_every_kind_of_text_is_known():
    kinds = {entry.kind for entry in config_help.entries().values()}
    assert kinds == {'', 'path', 'program', config_help.REGEX}


def images(*shape: int, dtype=np.uint8) -> dict[str, elements.Space]:
    return {'image': elements.Space(dtype, shape), 'vector': elements.Space(np.float32, (4, 5))}


@pytest.mark.parametrize('size', [(64, 64), (48, 256), (96, 80)])
def test_images_that_halve_to_3_to_16_pass(size):
    assert checks.check_image_sizes(images(*size, 3), configs.load()) is None


@pytest.mark.parametrize('size', [(60, 64), (64, 272), (32, 64), (7, 7)])
def test_other_images_are_refused(size):
    config = configs.load(['crafter'])
    with pytest.raises(UserError, match=r'--env\.crafter\.size') as caught:
        checks.check_image_sizes(images(*size, 3), config)
    assert f'{size[0]}x{size[1]}' in str(caught.value)


def test_a_task_without_a_size_flag_names_the_environment():
    with pytest.raises(UserError, match='in the environment'):
        checks.check_image_sizes(images(210, 160, 3), configs.load())


def test_outer_saves_one_halving():
    outer = configs.load(overrides={r'.*\.outer': True})
    assert checks.check_image_sizes(images(32, 32, 3), outer) is None
    only = configs.load(overrides={'agent.dec.simple.outer': True})
    with pytest.raises(UserError, match=r'--agent\.enc\.simple\.mults'):
        checks.check_image_sizes(images(32, 32, 3), only)


def test_only_uint8_images_have_three_axes():
    for spaces in (images(64, 64, 3, dtype=np.float32), images(2, 64, 64, 3)):
        with pytest.raises(UserError, match="'image'"):
            checks.check_image_sizes(spaces, configs.load())


def test_an_image_without_channels_is_named():
    config = configs.load()
    with pytest.raises(UserError, match=r"'image'.*\(84, 84\).*\(height, width, 1\)"):
        checks.check_image_sizes(images(84, 84), config)
    assert checks.check_image_sizes(images(84, 16), config) is None


def test_a_batch_of_single_steps_needs_no_values_of_them():
    line = '--batch_length 1 --report_length 1 --agent.repval_loss False'
    assert resolve(line).batch_length == 1


def test_logged_images_have_any_size():
    spaces = {'log/image': elements.Space(np.uint8, (7, 7, 3))}
    assert checks.check_image_sizes(spaces, configs.load()) is None


def test_bspace_must_divide_depth():
    config = configs.load(['debug'], {'agent.dec.simple.depth': 1})
    with pytest.raises(UserError, match='bspace'):
        checks.check_image_sizes(images(64, 64, 3), config)
