"""Which keys of the configuration are paths: absolute before anything is built.

An environment may change the current folder, or what `~` stands for, while a run goes on.
"""

import os
from collections.abc import Mapping
from typing import Any

KEYS = ('logdir', 'run.from_checkpoint', 'run.env_python', 'jax.compilation_cache')


def absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys among flat values that are paths, each as an absolute one."""
    return {key: _absolute(key, values[key]) for key in KEYS if key in values}


def _absolute(key: str, value: Any) -> Any:
    command = key == 'run.env_python' and os.sep not in str(value)  # found in PATH
    off = not value and key != 'logdir'
    if command or off or not isinstance(value, str) or '://' in value:
        return value
    return os.path.abspath(os.path.expanduser(value))
