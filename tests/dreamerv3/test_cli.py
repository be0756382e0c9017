"""What a user types and sees: exit codes, short messages, and runs from a clone."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from importlib import metadata

import pytest
import tomllib

import dreamerv3
import embodied
from dreamerv3 import checks, config_help, usage
from dreamerv3 import config as configs
from dreamerv3 import main as cli

ROOT = pathlib.Path(__file__).parent.parent.parent
RANDOM = '--random_agent True --logger.outputs jsonl --run.log_every 0'


def run(line, **kwargs):
    return subprocess.run(
        [sys.executable, *line.split()], capture_output=True, text=True, timeout=120, **kwargs
    )


def fails(line, capsys):
    """The message of a command that must be refused."""
    with pytest.raises(SystemExit) as caught:
        cli.main(line.split())
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith('Error: ')
    assert len(err.splitlines()) <= 5
    return err


def test_help_is_one_screen_without_jax(tmp_path):
    code = "import sys; from dreamerv3.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    *lines, modules = done.stdout.splitlines()
    assert not {'jax', 'equinox', 'dreamerv3.agent'} & set(modules.split())
    assert len(lines) <= 40
    for word in ('size400m', 'crafter', 'gym', 'eval_only', '--logdir', '--run.train_ratio'):
        assert word in done.stdout


def test_help_all_lists_every_key_with_default_and_meaning(capsys):
    cli.main(['--help', 'all'])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    defaults = configs.blocks()['defaults']
    assert list(lines) == [f'--{key}' for key in defaults]
    for key, default in defaults.items():
        assert lines[f'--{key}'].startswith(f'--{key} {configs.show(default)}  ')
        assert config_help.find(key).meaning in lines[f'--{key}']
    assert lines['--jax.platform'].endswith('auto, cuda, gpu, tpu, cpu')


def test_help_in_a_pipe_that_ends_early():
    line = f'set -o pipefail; {sys.executable} {ROOT}/dreamerv3/main.py --help all | head -n 1'
    done = subprocess.run(['bash', '-c', line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout == 'Every flag with its default:\n'


@pytest.mark.parametrize('line', ['--configs', '--configs --seed 3', '--seed 3 --configs'])
def test_configs_without_names_lists_the_blocks(line, capsys):
    cli.main(line.split())
    lines = capsys.readouterr().out.splitlines()
    assert [x.split()[0] for x in lines[1:]] == configs.block_names()


def test_the_installed_command_is_main(monkeypatch):
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    entry = metadata.EntryPoint('dreamerv3', scripts['dreamerv3'], 'console_scripts')
    called = []
    monkeypatch.setattr(cli, 'main', lambda: called.append(True))
    # What else it does to a process that is its own.
    monkeypatch.setattr(cli.output, 'guard', lambda: None)
    monkeypatch.setattr(cli.leftover, 'not_waited_for', contextlib.nullcontext)
    monkeypatch.setattr(cli.signals, 'ignore', lambda: None)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    entry.load()()
    assert called


def test_every_script_is_explained(capsys):
    cli.main(['-h'])
    out = capsys.readouterr().out
    assert all(f'  {x} ' in out for x in checks.scripts())
    assert set(usage.SCRIPTS) == {*checks.scripts()}


def test_a_bad_flag_from_a_clone_in_another_folder(tmp_path):
    done = run(f'{ROOT}/dreamerv3/main.py --bacth_size 3 --logdir {tmp_path}/x', cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        'Error: Unknown flag --bacth_size. Nearest: --batch_size. See --help.\n'
    )
    assert done.stdout == ''
    assert list(tmp_path.iterdir()) == []


def test_a_clone_runs_without_install_with_env_processes(tmp_path):
    """The script's own folder may not shadow modules, here or in the processes it starts."""
    env = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    line = f'-P {ROOT}/dreamerv3/main.py {RANDOM} --logdir {tmp_path}/run --run.steps 20'
    done = run(f'{line} --run.envs 2 --run.debug False', cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'run' / 'config.yaml').exists()
    assert '2 envs, one process each' in done.stdout


@pytest.mark.parametrize('module', ['dreamerv3', 'dreamerv3.main'])
def test_as_a_module(module):
    done = run(f'-m {module} --configs', cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [x.split()[0] for x in done.stdout.splitlines()[1:]] == configs.block_names()


def test_version(capsys):
    cli.main(['--version'])
    out = capsys.readouterr().out
    assert out.startswith(f'dreamerv3 {dreamerv3.__version__} in {ROOT / "dreamerv3"}, jax ')
    assert len(out.splitlines()) == 1


def test_no_arguments_print_the_help(capsys):
    cli.main([])
    nothing = capsys.readouterr().out
    cli.main(['--help'])
    assert capsys.readouterr().out == nothing


MODULE = """
import gymnasium as gym
import numpy as np

class Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}

gym.register('Env-v0', Env)
"""


@pytest.mark.parametrize('debug', [True, False])
def test_a_module_of_the_current_folder(debug, tmp_path):
    """Also in the processes of environments, which start in it."""
    (tmp_path / 'mymod.py').write_text(MODULE)
    line = f'-P {ROOT}/dreamerv3/main.py {RANDOM} --task gym_mymod:Env-v0 --run.steps 9'
    line = f'{line} --run.envs 1 --run.debug {debug} --logdir {tmp_path}/run'
    done = run(line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_script_folder_leaves_the_path():
    code = (
        f"import runpy, sys; sys.path.insert(0, '{ROOT}/dreamerv3');"
        f"runpy.run_path('{ROOT}/dreamerv3/main.py', run_name='__mp_main__');"
        f"print('{ROOT}/dreamerv3' in sys.path, sys.path[0])"
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd='/')
    assert done.stdout == f'False {ROOT}\n', done.stderr


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('--help me', ('--help', "'me'", 'all')),
        ('--config my.yaml', ('my.yaml', 'No such file')),
        ('--.*unitz 8', ('unitz', 'units')),
        ('--task atri_pong', ('atri', 'atari')),
        ('--logger.outputs jsnol', ('jsnol', 'jsonl')),
        ('--run.debug maybe', ('--run.debug', 'maybe', 'true or false', 'yes, no')),
        ('--agent.opt.lr fast', ('--agent.opt.lr', 'fast', 'a number')),
        ('--env.crafter.size 64', ('--env.crafter.size', '[64]', 'height and width')),
        ('--jax.platform gup', ('--jax.platform', 'gup', 'gpu')),
        ('--configs crafer', ('crafer', 'crafter')),
        ('--task crafter_rewrd', ('crafter_rewrd', 'crafter_reward')),
        ('--task CartPole-v1', ('CartPole-v1', '--task gym_CartPole-v1')),
        ('--task my_mod:Env', ('my_mod:Env', '--task gym_my_mod:Env')),
        ('--configs train', ("'train'", '--script train')),
        ('--script trian', ('trian', 'train')),
        ('--batch_size many', ('--batch_size', 'many', 'whole number')),
        ('--report_length 65', ('--report_length', '65', '64')),
        ('--replay.size 9', ('--replay.size', '9', '1024')),
    ],
)
def test_refused_before_anything_is_written(line, words, capsys, tmp_path):
    err = fails(f'{line} --logdir {tmp_path}/run', capsys)
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ('word', 'flag'),
    [
        ('train', 'For the script: --script train.'),
        ('trian', 'Nearest: --script train.'),
        ('crafter', 'For the block: --configs crafter.'),
        ('size1', 'Nearest: --configs size1m'),
        ('crafter_reward', 'For the task: --task crafter_reward.'),
    ],
)
def test_a_word_without_a_flag_gets_one(word, flag, capsys):
    err = fails(f'{word} --seed 1', capsys)
    assert f'found {word!r}. {flag}' in err


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('--configs crafter debug --env.crafter.size 60 60', ('--env.crafter.size', '60x60')),
        ('--configs debug --task gym_CratPole-v1', ('gym_CratPole-v1', 'CartPole-v1')),
    ],
)
def test_refused_before_jax(line, words, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'dreamerv3.agent', None)
    err = fails(f'{line} --logdir {tmp_path}', capsys)
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('--configs debug --task gym_CratPole-v1', ('gym_CratPole-v1',)),
        ('--configs crafter debug --env.crafter.size 60 60', ('60x60',)),
        ('--script eval_only', ('run.from_checkpoint',)),
        ('--run.from_checkpoint .', ('No checkpoint in',)),
    ],
)
def test_a_refused_start_leaves_no_folder(line, words, capsys, tmp_path):
    err = fails(f'{line} --logdir {tmp_path}/new/run --errfile 1', capsys)
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    'line',
    [
        '--task gym_CratPole-v1',
        '--script eval_only',
        '--script eval_only --run.from_checkpoint {run}',
    ],
)
def test_a_refused_start_keeps_the_files_of_the_run(line, capsys, tmp_path):
    flags = f'--configs debug {RANDOM} --logdir {tmp_path}'
    cli.main([*flags.split(), '--task', 'dummy_disc', '--run.steps', '60'])
    before = {x: x.read_bytes() for x in tmp_path.rglob('*') if x.is_file()}
    line = line.format(run=tmp_path).replace('--script', '--random_agent 0 --script')
    fails(f'{flags} {line} --run.steps 90', capsys)
    assert {x: x.read_bytes() for x in tmp_path.rglob('*') if x.is_file()} == before


def test_errors_of_the_run_are_short_too(capsys, tmp_path, monkeypatch):
    def refuse(*args):
        raise embodied.UserError('something to change')

    monkeypatch.setattr(embodied.run, 'train', refuse)
    assert fails(f'--logdir {tmp_path}', capsys) == 'Error: something to change\n'


def test_bugs_keep_their_traceback_and_errfile_keeps_a_copy(tmp_path, monkeypatch):
    def crash(*args):
        raise ZeroDivisionError('a bug')

    monkeypatch.setattr(embodied.run, 'train', crash)
    for flag in (False, True):
        with pytest.raises(ZeroDivisionError):
            cli.main(['--logdir', str(tmp_path), '--errfile', str(flag)])
        assert (tmp_path / 'error').exists() == flag
    assert 'ZeroDivisionError: a bug' in (tmp_path / 'error').read_text()


def test_interrupt_is_one_line(capsys, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(embodied.run, 'train', interrupt)
    with pytest.raises(SystemExit) as caught:
        cli.main(['--logdir', str(tmp_path)])
    assert caught.value.code == 130
    assert capsys.readouterr().err == 'Interrupted.\n'


def test_scripts_get_factories_and_args(tmp_path, monkeypatch):
    calls = {}
    for name in ('train', 'eval_only'):
        monkeypatch.setattr(
            embodied.run, name, lambda *a, name=name, **k: calls.update({name: a})
        )
    cli.main(['--logdir', str(tmp_path), '--seed', '3'])
    cli.main(['--logdir', str(tmp_path), '--script', 'eval_only'])
    *factories, args, ready = calls['train']
    assert len(factories) == 5
    assert (args.seed, args.logdir) == (3, str(tmp_path))
    assert factories[2](0).obs_space.keys() >= {'image', 'reward'}
    assert len(calls['eval_only']) == 5
    assert list(tmp_path.iterdir()) == []
    ready()
    assert configs.load(files=[tmp_path / 'config.yaml']).seed == 3


def test_random_agent_plays_and_goes_on(tmp_path, capsys):
    cli.main([*RANDOM.split(), '--logdir', f'{tmp_path}/run', '--run.steps', '150'])
    assert 'new' in capsys.readouterr().out
    cli.main([*RANDOM.split(), '--logdir', f'{tmp_path}/run', '--run.steps', '2000'])
    assert 'an existing run goes on' in capsys.readouterr().out
    lines = (tmp_path / 'run' / 'scores.jsonl').read_text().splitlines()
    scores = [json.loads(x) for x in lines]
    assert len(scores) >= 2
    assert all(0 <= x['episode/score'] <= 100 for x in scores)
    assert scores[-1]['step'] > 150


def test_a_run_that_goes_on_moves_later_lines_aside(tmp_path, capsys):
    line = f'{RANDOM} --logdir {tmp_path} --configs debug --run.steps'
    cli.main([*line.split(), '60'])
    with open(tmp_path / 'metrics.jsonl', 'a') as file:  # as if killed after the last save
        file.write('{"step": 64, "x": 1.0}\n{"step": 68, "x": 2.0}\n')
    cli.main([*line.split(), '120'])
    (side,) = tmp_path.glob('metrics-*.jsonl')
    assert f'metrics.jsonl: 2 lines beyond step 60 moved to {side.name}' in (
        capsys.readouterr().out
    )
    assert [json.loads(x)['step'] for x in side.read_text().splitlines()] == [64, 68]
    steps = [
        json.loads(x)['step'] for x in (tmp_path / 'metrics.jsonl').read_text().splitlines()
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 120


def test_a_file_of_the_user_and_its_mistakes(tmp_path, capsys):
    path = tmp_path / 'my.yaml'
    path.write_text(f'task: dummy_disc\nlogdir: {tmp_path}/run\nrun.steps: 8\n')
    cli.main([*RANDOM.split(), '--configs', 'debug', '--config', str(path)])
    assert configs.load(files=[tmp_path / 'run' / 'config.yaml']).run.steps == 8
    path.write_text('bacth_size: 3\n')
    err = fails(f'--config {path}', capsys)
    assert err == (
        f'Error: In --config {path}: Unknown flag --bacth_size. Nearest: --batch_size. '
        'See --help.\n'
    )


@pytest.mark.parametrize(
    ('script', 'shown'),
    [
        ('parallel', 'task script logdir batch replay platform addresses'),
        ('parallel_replay', 'script logdir batch replay addresses'),
        ('parallel_envs', 'task script logdir addresses'),
    ],
)
def test_parts_of_a_parallel_run_say_what_matters_to_them(script, shown, monkeypatch):
    monkeypatch.setenv('DREAMER_SECRET', 'horse')
    flags = {'script': script, 'logdir': 'somewhere', 'run.replay_addr': 'far:2222'}
    text = usage.facts(configs.load(['debug'], flags))
    assert [x.split()[0] for x in text.splitlines()[1:]] == shown.split()
    assert 'replay far:2222, actor localhost:{auto}' in text
    assert text.endswith('; with DREAMER_SECRET')
    assert 'horse' not in text
    assert 'in this process' not in text
