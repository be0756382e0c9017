"""How the config of a run fits the one it had before: what stops it, and what only changed."""

import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import elements

from dreamerv3 import config as configs
from dreamerv3 import evaluation, paths
from embodied import UserError

SCRIPTS = ('train', 'train_eval', 'parallel')  # that go on with what lies in the logdir
# Keys that decide which arrays an agent has.
SIZES = re.compile(
    r'random_agent|agent\.(.*\.(depth|mults|layers|units|kernel|outer|bspace|bins|impl|debias)|'
    r'dyn\.rssm\.(deter|hidden|stoch|classes|blocks|(img|obs|dyn)layers|absolute)|opt\.momentum)'
)
# Options of the suite that decide what the environments of a task look like.
LOOKS = ('size', 'gray', 'actions', 'proprio', 'image')
MOST = 3  # differences that a message names


def check(config: elements.Config) -> None:
    """Raise UserError if the run cannot go on with what it would load, and say why.

    That is the run in the logdir, or the agent of run.from_checkpoint. What no config.yaml
    tells shows when the checkpoint is loaded.
    """
    logdir = pathlib.Path(config.logdir)
    begun = any((logdir / x).exists() for x in ('ckpt', 'replay'))
    if config.script in SCRIPTS and begun:
        _check_run(config, logdir)
    elif config.run.from_checkpoint and config.run.from_checkpoint_regex == '.*':
        _check_agent(config, config.run.from_checkpoint)


def _check_agent(config: elements.Config, source: str) -> None:
    """Refuse the agent of another run that has other sizes; its task may be another one."""
    path = evaluation.find(source)
    if path and (found := list(_differences(config, _read(path), _sizes(config)))):
        raise UserError(
            f'The agent of {source} does not fit: {_some(found)}. Take the config it has, '
            f'--config {path}, or the same blocks.'
        )


def _check_run(config: elements.Config, logdir: pathlib.Path) -> None:
    """Refuse to go on with a run of another task or with other sizes."""
    old = _read(logdir / 'config.yaml')
    if found := list(_differences(config, old, ['task'])):
        raise UserError(
            f'{logdir} holds another run: {_some(found)}. Take another --logdir; to begin it '
            f'with the agent of this one, add --run.from_checkpoint {logdir}.'
        )
    suite = config.task.partition('_')[0]
    keys = [*_sizes(config), *(f'env.{suite}.{x}' for x in LOOKS)]
    if found := list(_differences(config, old, keys)):
        raise UserError(
            f'The run in {logdir} has other sizes: {_some(found)}. Take those it has '
            f'(--config {logdir / "config.yaml"}), or another --logdir.'
        )


def _sizes(config: elements.Config) -> list[str]:
    return [key for key in config.flat if SIZES.fullmatch(key)]


def _differences(
    config: elements.Config, old: Mapping[str, Any], keys: Iterable[str]
) -> Iterator[str]:
    """`KEY OLD there, NEW here` for keys that both have."""
    new = _plain(config)
    for key in keys:
        if key in old and key in new and old[key] != new[key]:
            yield f'{key} {configs.show(old[key])} there, {configs.show(new[key])} here'


def _some(found: list[str]) -> str:
    more = f' (and {len(found) - MOST} more)' if len(found) > MOST else ''
    return '; '.join(found[:MOST]) + more


def _read(path: str | pathlib.Path) -> dict[str, Any]:
    """The flat values of a config.yaml; none if it is missing or damaged."""
    if not pathlib.Path(path).is_file():  # nor a pipe, which would be waited for
        return {}
    try:
        return configs.read_file(path)
    except UserError:
        return {}


def _plain(config: elements.Config) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in config.flat.items()}


def changes(config: elements.Config) -> list[str]:
    """Lines `KEY: OLD -> NEW` for logdir/config.yaml against a config that is to replace it."""
    path = pathlib.Path(config.logdir) / 'config.yaml'
    if not path.is_file():
        return []
    old, new = _read(path), _plain(config)
    old |= paths.absolute(old)  # as a config before this rule may not be
    if not old:  # damaged; it is kept beside the new one in any case
        return [f'{path.name}: cannot be read']
    show = lambda values, key: configs.show(values[key]) if key in values else 'not set'
    return [
        f'{key}: {show(old, key)} -> {show(new, key)}'
        for key in new
        if key not in old or old[key] != new[key]
    ]


def text(config: elements.Config) -> str:
    """The changes as one block, '' if there are none."""
    lines = changes(config)
    title = 'Changed since the last start (the old config is kept beside config.yaml):'
    return '\n  '.join([title, *lines]) if lines else ''
