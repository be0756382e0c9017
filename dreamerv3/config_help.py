"""What is known of each key of the configuration: the entries of config_help.yaml."""

import functools
import pathlib
import re
from dataclasses import dataclass
from typing import Any

PATH = pathlib.Path(__file__).with_suffix('.yaml')
REGEX = 'regular expression'  # a kind of text


@dataclass(frozen=True)
class Entry:
    """Describes a key, or all that a regular expression matches; config_help.yaml says how."""

    meaning: str
    bounds: str = ''
    choices: tuple[str, ...] = ()
    kind: str = ''
    later: str = ''


@dataclass(frozen=True)
class Unused:
    """Describes a key that is accepted and does nothing.

    default: the value it had, why: a clause that says why nothing reads it, choices and later:
    which values were taken, as in `Entry`.
    """

    default: Any
    why: str
    choices: tuple[str, ...] = ()
    later: str = ''


def find(key: str) -> Entry:
    """Return the entry of a full dotted key. Raises KeyError if there is none."""
    if key in entries():
        return entries()[key]
    for name, entry in entries().items():
        if re.fullmatch(name, key):
            return entry
    raise KeyError(f'{key} is not in {PATH.name}')


@functools.cache
def entries() -> dict[str, Entry]:
    """Return what config_help.yaml says of keys, by key or regular expression."""
    return {key: Entry(**_fields(value)) for key, value in _content()['keys'].items()}


@functools.cache
def unused() -> dict[str, Unused]:
    """Return the keys that are accepted and do nothing."""
    return {key: Unused(**_fields(value)) for key, value in _content()['unused'].items()}


@functools.cache
def _content() -> dict[str, dict[str, Any]]:
    from ruamel.yaml import YAML

    return YAML(typ='safe').load(PATH.read_text(encoding='utf-8'))


def _fields(value: Any) -> dict[str, Any]:
    """Turn an entry of the file into the fields of its class."""
    fields = value if isinstance(value, dict) else {'meaning': value}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
