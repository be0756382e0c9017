"""Run loops: what an agent, environments and a replay do together.

`parallel` is imported when it is first used: runs in one process need no network.
"""

import importlib
from typing import Any

from .eval_only import eval_only
from .train import train
from .train_eval import train_eval

__all__ = ['eval_only', 'parallel', 'train', 'train_eval']


def __getattr__(name: str) -> Any:
    if name == 'parallel':
        return importlib.import_module('.parallel', __name__)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
