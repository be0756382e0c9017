"""Parts that another agent could reuse: contracts, driver, replay, logging, run loops, envs.

Nothing here imports `dreamerv3`, and importing `embodied` itself needs neither JAX nor any
environment package. Public names are looked up when they are first used, so that an
interpreter that only runs an environment pays for nothing else.
"""

import importlib
from typing import Any

# Public name -> module that holds it; a second entry names the attribute in that module.
_HOMES = {
    'UserError': ('core.errors', 'UserError'),
    'Agent': ('core.base', 'Agent'),
    'Env': ('core.base', 'Env'),
    'Stream': ('core.base', 'Stream'),
    'Driver': ('run.driver', 'Driver'),
    'RandomAgent': ('core.random_agent', 'RandomAgent'),
    'Replay': ('replay.replay', 'Replay'),
    'spaces': ('core.spaces', None),
    'streams': ('core.streams', None),
    'wrappers': ('core.wrappers', None),
    'clocks': ('core.clocks', None),
    'checkpoint': ('checkpoint', None),
    'replay': ('replay', None),
    'selectors': ('replay.selectors', None),
    'limiters': ('replay.limiters', None),
    'logging': ('logging', None),
    'envs': ('envs', None),
    'run': ('run', None),
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    home, attribute = _HOMES[name]
    module = importlib.import_module(f'{__name__}.{home}')
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
