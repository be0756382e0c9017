"""DreamerV3: the algorithm, its command line, and its use as a library.

`load(folder)` gives a trained agent to act with, `train(make_env, logdir)` trains on an
environment of one's own, `wrap(env)` makes one fit for an agent. They are looked up when they
are first used: importing the package imports neither JAX nor an environment.
"""

import importlib
from typing import Any

# Public name -> module that holds it.
_HOMES = {'load': 'inference', 'train': 'training', 'wrap': 'training'}

__version__ = '0.1.0'
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    importlib.import_module('dreamerv3.origin').check()
    value = getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
