"""Writes docs/configs.md from configs.yaml and config_help.yaml: python docs/configs.py"""

import itertools
import pathlib

from dreamerv3 import config, config_help, usage

PATH = pathlib.Path(__file__).with_suffix('.md')
HEAD = """# Configuration

Every key is a flag, `--KEY VALUE`. `--configs A B` applies named blocks in that order over the
defaults, `--config FILE` then YAML files of your own, and flags come last. A key with other
characters than letters, digits and `_.-` is a regular expression over full keys
(`--'.*\\.units' 64`). Numbers have bounds: `[0, 1)` is from 0 to less than 1.

This file is made by `make docs` from [configs.yaml](../dreamerv3/configs.yaml) and
[config_help.yaml](../dreamerv3/config_help.yaml); a test compares them.
"""
UNUSED = """## Keys without effect

Commands and files for the reference or for earlier versions may set these; a line at the start
says so.
"""


def text() -> str:
    """The whole document."""
    defaults = config.blocks()['defaults']
    parts = [HEAD, '## Keys\n']
    for section, keys in itertools.groupby(defaults, lambda x: x.rpartition('.')[0]):
        rows = [_row(key, defaults[key]) for key in keys]
        title = f'### {section}\n\n' if section else ''
        parts.append(f'{title}| key | default | meaning |\n|---|---|---|\n' + '\n'.join(rows))
        parts.append('')
    parts += ['## Blocks\n', '| block | sets |', '|---|---|']
    for name in config.block_names():
        sets = '<br>'.join(
            _code(f'{k}: {config.show(v)}') for k, v in config.blocks()[name].items()
        )
        parts.append(f'| `{name}` | {sets} |')
    parts += ['', UNUSED, '| key | value | why |', '|---|---|---|']
    for key, entry in config_help.unused().items():
        parts.append(f'| {_code(key)} | {_code(config.show(entry.default))} | {entry.why} |')
    return '\n'.join(parts) + '\n'


def _row(key: str, default: object) -> str:
    meaning = usage.described(key, '`{}`'.format).replace('|', '\\|')
    return f'| {_code(key)} | {_code(config.show(default))} | {meaning} |'


def _code(text: str) -> str:
    return '`' + text.replace('|', '\\|') + '`'


if __name__ == '__main__':
    PATH.write_text(text(), encoding='utf-8')
