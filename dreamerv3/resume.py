"""What differs between the config of a run that goes on and the one it had before."""

import pathlib

import elements

from dreamerv3 import config as configs
from dreamerv3 import paths
from embodied import UserError


def changes(config: elements.Config) -> list[str]:
    """Lines `KEY: OLD -> NEW` for logdir/config.yaml against a config that is to replace it."""
    path = pathlib.Path(config.logdir) / 'config.yaml'
    if not path.exists():
        return []
    try:
        old = configs.read_file(path)
        old |= paths.absolute(old)  # as a config before this rule may not be
    except UserError:  # damaged; it is kept beside the new one in any case
        return [f'{path.name}: cannot be read']
    new = {k: list(v) if isinstance(v, tuple) else v for k, v in config.flat.items()}
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
