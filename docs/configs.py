"""Writes docs/configs.md from configs.yaml and meanings.yaml: python docs/configs.py"""

import itertools
import pathlib

from dreamerv3 import config, usage

PATH = pathlib.Path(__file__).with_suffix('.md')
HEAD = """# Configuration

Every key is a flag, `--KEY VALUE`. `--configs A B` applies named blocks in that order over the
defaults, `--config FILE` then YAML files of your own, and flags come last. A key with other
characters than letters, digits and `_.-` is a regular expression over full keys
(`--'.*\\.units' 64`). Numbers have bounds: `[0, 1)` is from 0 to less than 1.

This file is made by `python docs/configs.py` from [configs.yaml](../dreamerv3/configs.yaml),
[meanings.yaml](../dreamerv3/meanings.yaml) and [bounds.yaml](../dreamerv3/bounds.yaml); a test
compares them.
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
    return '\n'.join(parts) + '\n'


def _row(key: str, default: object) -> str:
    meaning = usage.meaning(key).replace('|', '\\|') + usage.values(key, _code)
    meaning += usage.later(key)
    return f'| {_code(key)} | {_code(config.show(default))} | {meaning} |'


def _code(text: str) -> str:
    return '`' + text.replace('|', '\\|') + '`'


if __name__ == '__main__':
    PATH.write_text(text(), encoding='utf-8')
