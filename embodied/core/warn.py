"""Warnings that are said once in a run, however many environments have the cause.

An environment in a process of its own hands its warnings over to the process of the run, which
knows what the other environments have said.
"""

from collections.abc import Callable
from typing import Any

MOST = 100  # topics of a run; what comes after them is not said
LONGEST = 1000  # characters of a warning

_said: set[str] = set()
_hand_over: Callable[[str, str], Any] | None = None


def once(topic: str, text: str) -> None:
    """Print a warning, unless one of the same topic was said since the run began."""
    if topic in _said or len(_said) >= MOST:
        return
    _said.add(topic)
    if _hand_over is None:
        line = ''.join(x if x.isprintable() else ' ' for x in text[:LONGEST])
        print(f'Warning: {line}', flush=True)
    else:
        _hand_over(topic, text)


def begin() -> None:
    """Forget what was said, since a run begins."""
    _said.clear()


def hand_over(receive: Callable[[str, str], Any] | None) -> None:
    """Give warnings to `receive(topic, text)` instead of printing them; None ends that."""
    global _hand_over
    _hand_over = receive
