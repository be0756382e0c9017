"""Run loops: what an agent, environments and a replay do together."""

from .eval_only import eval_only
from .train import train

__all__ = ['eval_only', 'train']
