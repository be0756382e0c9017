"""Checkpoints on disk: complete or absent, arrays and JSON; the reference's too, if asked."""

from .checkpoint import Checkpoint, find, read

__all__ = ['Checkpoint', 'find', 'read']
