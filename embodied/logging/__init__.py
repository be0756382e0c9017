"""Metrics on their way out: the logger, its outputs, and what all run loops count."""

from .aggregate import Aggregate
from .episodes import Episodes
from .jsonl import JSONL
from .logger import Logger
from .scope import Scope
from .terminal import Terminal
from .usage import Rate, Usage, timer_stats

__all__ = [
    'JSONL',
    'Aggregate',
    'Episodes',
    'Logger',
    'Rate',
    'Scope',
    'Terminal',
    'Usage',
    'timer_stats',
]
