"""Code of an environment in a process that is not its own: what it changes stays with it.

An environment may set how numpy reports errors of arithmetic, replace `sys.stdout`, call
`sys.exit`, or fork. None of that is to reach the run that it is part of.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from . import signals


class Guest:
    """Calls functions of one environment: `guest(fn, *args)` returns what fn returns.

    Settings of arithmetic that a call leaves hold for the next one and for nothing else, and
    the streams are what they were. An exit, or another error that is no Exception, becomes a
    RuntimeError; KeyboardInterrupt and what a signal handler raises pass. A forked child that
    leaves the function ends there, or there would be two runs.
    """

    def __init__(self) -> None:
        self._arithmetic = _arithmetic()

    def __call__(self, fn: Callable, *args: Any, **kwargs: Any) -> Any:
        process, streams = os.getpid(), (sys.stdout, sys.stderr)
        with np.errstate(**self._arithmetic):
            code: Any = 1
            try:
                result = fn(*args, **kwargs)
                code = 0
                return result
            except (Exception, KeyboardInterrupt):
                raise
            except BaseException as error:
                if isinstance(error, SystemExit):
                    code = error.code
                if os.getpid() == process and signals.by_handler(error):
                    raise
                raise RuntimeError(_describe(error)) from error
            finally:
                if os.getpid() != process:
                    _end_child(code)
                self._arithmetic = _arithmetic()
                sys.stdout, sys.stderr = streams


def _end_child(code: Any) -> None:
    """End a forked child as Python would, but for what was registered in its parent."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error.__cause__ or error, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _arithmetic() -> dict[str, Any]:
    """How this thread reports errors of arithmetic."""
    return {**np.geterr(), 'call': np.geterrcall()}


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f'The environment called sys.exit({"" if error.code is None else error.code!r}).'
    return f'The environment raised {type(error).__name__}: {error}'
