"""Keys of the reference and of earlier versions that are accepted and have no effect."""

from collections.abc import Iterable, Mapping
from typing import Any

from dreamerv3 import bounds, checks, config_help


def defaults() -> dict[str, Any]:
    """Return the values that the keys had before anybody could set them."""
    return {key: entry.default for key, entry in config_help.unused().items()}


def drop(values: Mapping[str, Any], named: Iterable[str]) -> dict[str, Any]:
    """Take the unused keys out of flat values, and print which of them were given.

    named: keys and regular expressions that were set. Raises UserError for a value that none of
    these keys ever took.
    """
    named, given = {*named}, []
    for key, entry in config_help.unused().items():
        value, default = values[key], entry.default
        if entry.later:
            checks.refuse_later(key, value, default, entry.later)
        bounds.check_choice(key, value, entry.choices)
        if value != default:
            print(f'Warning: --{key} {value} has no effect: {entry.why}.', flush=True)
        elif key in named:
            given.append(f'--{key}')
    if given:
        print(f'Not used any more, without effect: {", ".join(given)}', flush=True)
    return {key: value for key, value in values.items() if key not in config_help.unused()}
