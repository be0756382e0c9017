"""Makes those keys of the configuration that are paths absolute, before anything is built.

An environment may change the current folder, or what `~` stands for, while a run goes on.
"""

import os
from collections.abc import Mapping
from typing import Any

from dreamerv3 import config_help


def keys() -> dict[str, str]:
    """Return the keys whose text names a file, each with its kind, path or program."""
    kinds = {key: entry.kind for key, entry in config_help.entries().items()}
    return {key: kind for key, kind in kinds.items() if kind in ('path', 'program')}


def absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys among flat values that are paths, each as an absolute one."""
    return {k: _absolute(k, kind, values[k]) for k, kind in keys().items() if k in values}


def _absolute(key: str, kind: str, value: Any) -> Any:
    command = kind == 'program' and os.sep not in str(value)  # found in PATH
    off = not value and key != 'logdir'
    if command or off or not isinstance(value, str) or '://' in value:
        return value
    return os.path.abspath(os.path.expanduser(value))
