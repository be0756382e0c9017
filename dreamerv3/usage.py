"""What the command line prints of itself: the help, the list of blocks, facts about a run."""

import os
import pathlib
import platform
import textwrap
from collections.abc import Callable, Sequence
from importlib import metadata

import elements

from dreamerv3 import __version__, checks, config_help, outputs
from dreamerv3 import config as configs
from embodied import UserError, envs

FLAGS = (
    ('--configs BLOCK ...', 'named blocks, applied in order over the defaults'),
    (
        '--config FILE ...',
        'YAML files of your own with the rules of a block, after the blocks',
    ),
    ('--task SUITE_TASK', 'what to play'),
    ('--logdir FOLDER', 'where outputs go; an existing run goes on; {timestamp} is filled in'),
    ('--script NAME', 'train, train_eval, or eval_only with --run.from_checkpoint'),
    ('--seed N', 'of everything that draws'),
    ('--batch_size N', 'sequences per update; fewer need less memory'),
    ('--run.steps N', 'stop after so many environment steps'),
    ('--run.train_ratio X', 'replayed steps per environment step'),
    ('--run.envs N', 'environments'),
    ('--run.debug BOOL', 'environments in this process instead of one process each'),
    ('--jax.platform NAME', 'auto, cpu, gpu, cuda or tpu'),
    ('--logger.outputs A,B', ', '.join(outputs.MAKERS)),
    (r"--'.*\.units' N", 'regular expressions set several keys at once'),
)


# What each script does.
SCRIPTS = {
    'train': 'learn; goes on where the logdir ends',
    'train_eval': 'the same, with evaluations in environments of their own',
    'eval_only': 'play with the agent of --run.from_checkpoint, without learning',
    'parallel': 'learn in several processes: agent, replay, logger and environments',
    'parallel_env': 'one environment of a parallel run',
    'parallel_envs': 'all environments of a parallel run',
    'parallel_replay': 'the replay of a parallel run',
}


# Which facts matter to the parts of a parallel run.
PARALLEL = {
    'parallel': ('task', 'script', 'logdir', 'batch', 'replay', 'platform'),
    'parallel_replay': ('script', 'logdir', 'batch', 'replay'),
    'parallel_envs': ('task', 'script', 'logdir'),
    'parallel_env': ('task', 'script', 'logdir'),
}


def answer(argv: Sequence[str]) -> str | None:
    """The text for --help, --help all, --version, --configs without names, or no arguments.

    None if a run is meant.
    """
    if not argv:
        return help_text()
    if '--version' in argv:
        return version_text()
    asked = [i for i, arg in enumerate(argv) if arg in ('--help', '-h')]
    if asked:
        topic = [x for x in argv[asked[0] + 1 :][:1] if not x.startswith('--')]
        if topic and topic != ['all']:
            raise UserError(f'--help takes nothing or `all` (every key); found {topic[0]!r}.')
        return help_all() if topic else help_text()
    if '--configs' in argv and not configs.parse_flags(argv)[0]:
        return blocks_text()
    return None


def help_text() -> str:
    """One screen: usage, blocks, suites, scripts and the flags used most."""
    flags = '\n'.join(f'  {flag:<22}{text}' for flag, text in FLAGS)
    scripts = '\n'.join(f'  {x:<22}{SCRIPTS[x]}' for x in checks.scripts())
    return (
        'Usage: dreamerv3 [--configs BLOCK ...] [--FLAG VALUE ...]\n'
        '   or: python dreamerv3/main.py ..., python -m dreamerv3 ...\n'
        '   or: dreamerv3 view LOGDIR, dreamerv3 plot LOGDIR ... --out FILE (and --help)\n'
        '   or: dreamerv3 --version\n\n'
        f'{_list("Blocks", configs.block_names())}\n'
        f'{_list("Suites", list(envs.SUITES))}\n\n'
        f'Values of --script:\n{scripts}\n\n'
        f'Flags used most (--help all lists every one, --configs what the blocks set):\n{flags}'
    )


def version_text() -> str:
    """What a report of a fault needs: versions, and which copy of the project it is."""
    folder = pathlib.Path(__file__).parent
    jax = metadata.version('jax')
    return f'dreamerv3 {__version__} in {folder}, jax {jax}, Python {platform.python_version()}'


def help_all() -> str:
    """Every key with its default and its meaning, a line each."""
    lines = []
    for key, default in configs.blocks()['defaults'].items():
        name = f'--{key} {configs.show(default)}'
        lines.append(f'{name:<42}  {described(key)}')
    return '\n'.join(['Every flag with its default:', *lines])


def described(key: str, mark: Callable[[str], str] = str) -> str:
    """What a key means and which values it takes, each of them marked."""
    entry = config_help.find(key)
    text = entry.meaning
    if len(entry.choices) > 1:
        text += ': ' + ', '.join(map(mark, entry.choices))
    elif entry.bounds:
        text += f'; in {mark(entry.bounds)}'
    return text + ' (later version)' * bool(entry.later)


def blocks_text() -> str:
    """The named blocks with what each sets."""
    lines = []
    for name in configs.block_names():
        sets = ', '.join(f'{k} {v}' for k, v in configs.blocks()[name].items())
        lines.append(f'  {name:<12} {textwrap.shorten(sets, 80, placeholder=" ...")}')
    return '\n'.join(['Blocks for --configs:', *lines])


def facts(config: elements.Config) -> str:
    """What a run is about to do, in one block."""
    old = (pathlib.Path(config.logdir) / 'ckpt').exists()
    rows = {
        'task': f'{config.task}, {envs_text(config)}, seed {config.seed}',
        'script': f'{config.script} until step {config.run.steps:,.0f}',
        'logdir': f'{config.logdir} ({"an existing run goes on" if old else "new"})',
        'batch': f'{config.batch_size} sequences of {config.batch_length} steps',
        'replay': f'{config.replay.size:,.0f} items',
        'platform': f'{config.jax.platform}, {config.jax.compute_dtype}',
    }
    if config.script.startswith('parallel'):
        rows = {k: v for k, v in rows.items() if k in PARALLEL[config.script]}
        rows['addresses'] = addresses(config)
    return '\n'.join(['DreamerV3', *(f'  {key:<10}{value}' for key, value in rows.items())])


def addresses(config: elements.Config) -> str:
    """Where the parts of a parallel run meet, and whether they share a secret."""
    found = ', '.join(f'{x} {config.run[f"{x}_addr"]}' for x in ('replay', 'actor', 'logger'))
    secret = 'with' if os.environ.get('DREAMER_SECRET') else 'without'
    return f'{found}; {secret} DREAMER_SECRET'


def envs_text(config: elements.Config) -> str:
    """How many environments there are, and where."""
    apart = config.script.startswith('parallel') or not config.run.debug
    place = 'one process each' if apart else 'in this process'
    if config.run.env_python:
        place = f'one process each of {config.run.env_python}'
    return f'{config.run.envs} env{"s" * (config.run.envs > 1)}, {place}'


def _list(title: str, names: list[str]) -> str:
    indent = ' ' * 9
    return textwrap.fill(f'{title + ":":<9}{", ".join(names)}', 96, subsequent_indent=indent)
