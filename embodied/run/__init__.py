"""Run loops: what an agent, environments and a replay do together."""

from .eval_only import eval_only
from .train import train
from .train_eval import train_eval

__all__ = ['eval_only', 'train', 'train_eval']
