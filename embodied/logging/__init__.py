"""Metrics on their way out: the logger, its outputs, and what all run loops count."""

from .aggregate import Aggregate
from .background import Background
from .episodes import Episodes
from .expa import Expa
from .jsonl import JSONL
from .logger import Logger
from .mlflow import MLFlow
from .scope import Scope
from .tensorboard import TensorBoard
from .terminal import Terminal
from .usage import Rate, Usage, timer_stats
from .videos import Videos
from .wandb import WandB

__all__ = [
    'JSONL',
    'Aggregate',
    'Background',
    'Episodes',
    'Expa',
    'Logger',
    'MLFlow',
    'Rate',
    'Scope',
    'TensorBoard',
    'Terminal',
    'Usage',
    'Videos',
    'WandB',
    'timer_stats',
]
