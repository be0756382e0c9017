"""What the command line prints of itself: the help, the list of blocks, facts about a run."""

import pathlib
import textwrap

import elements

from dreamerv3 import checks
from dreamerv3 import config as configs
from embodied import envs

FLAGS = (
    ('--configs BLOCK ...', 'named blocks, applied in order over the defaults'),
    ('--task SUITE_TASK', 'what to play'),
    ('--logdir FOLDER', 'where outputs go; an existing run goes on; {timestamp} is filled in'),
    ('--script NAME', 'what to do: train, or eval_only with --run.from_checkpoint'),
    ('--seed N', 'of everything that draws'),
    ('--batch_size N', 'sequences per update; fewer need less memory'),
    ('--run.steps N', 'stop after so many environment steps'),
    ('--run.train_ratio X', 'replayed steps per environment step'),
    ('--run.envs N', 'environments'),
    ('--run.debug BOOL', 'environments in this process instead of one process each'),
    ('--jax.platform NAME', 'auto, cpu, gpu, cuda or tpu'),
    ('--logger.outputs A,B', 'jsonl, scope'),
    (r"--'.*\.units' N", 'regular expressions set several keys at once'),
)


def help_text() -> str:
    """One screen: usage, blocks, suites, scripts and the flags used most."""
    flags = '\n'.join(f'  {flag:<22}{text}' for flag, text in FLAGS)
    return (
        'Usage: python dreamerv3/main.py [--configs BLOCK ...] [--FLAG VALUE ...]\n\n'
        f'{_list("Blocks", configs.block_names())}\n'
        f'{_list("Suites", list(envs.SUITES))}\n'
        f'{_list("Scripts", list(checks.SCRIPTS))}\n\n'
        f'Flags used most; every key of dreamerv3/configs.yaml is one:\n{flags}\n'
    )


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
    return '\n'.join(['DreamerV3', *(f'  {key:<10}{value}' for key, value in rows.items())])


def envs_text(config: elements.Config) -> str:
    """How many environments there are, and where."""
    place = 'in this process' if config.run.debug else 'one process each'
    return f'{config.run.envs} env{"s" * (config.run.envs > 1)}, {place}'


def _list(title: str, names: list[str]) -> str:
    indent = ' ' * 9
    return textwrap.fill(f'{title + ":":<9}{", ".join(names)}', 96, subsequent_indent=indent)
