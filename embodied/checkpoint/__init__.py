"""Checkpoints on disk: complete or absent, as arrays and JSON; the reference's behind a flag."""

from .checkpoint import Checkpoint, find, read

__all__ = ['Checkpoint', 'find', 'read']
