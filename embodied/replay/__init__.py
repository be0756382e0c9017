"""Replay of sequences: storage in chunks, selectors, limiters. numpy, never JAX."""

from . import limiters, selectors
from .replay import Replay

__all__ = ['Replay', 'limiters', 'selectors']
