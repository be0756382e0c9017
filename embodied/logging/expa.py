"""The output expa, through the class that an installed version of elements offers."""

import inspect
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import elements

from ..core.errors import UserError
from .logger import Summary


class Expa:
    """Hand summaries to elements' ExpaOutput.

    user: whose experiments these are (logger.user). Raises UserError if elements has no such
    class, or one that asks for what this package does not know.

    >>> Expa('logdir', project='dreamer', user='me', flags={'seed': 0})
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: The output expa needs a version of elements with ...
    """

    name = 'expa'

    def __init__(
        self, logdir: str | os.PathLike, project: str, user: str, flags: Mapping[str, Any]
    ):
        make = getattr(elements.logger, 'ExpaOutput', None)
        if make is None:
            raise UserError(
                'The output expa needs a version of elements with ExpaOutput, which no public '
                'one has; take it out of logger.outputs.'
            )
        folder = pathlib.Path(logdir).absolute()
        known = {
            'exp': folder.parent.name,
            'run': folder.name,
            'proj': project,
            'user': user,
            'flags': dict(flags),
        }
        wanted = inspect.signature(make).parameters
        if unknown := [k for k, p in wanted.items() if k not in known and p.default is p.empty]:
            raise UserError(f'The ExpaOutput of elements asks for {unknown}, unknown here.')
        self._output = make(**{k: v for k, v in known.items() if k in wanted})

    def write(self, summaries: list[Summary]) -> None:
        """Hand all of them on."""
        self._output(summaries)

    def close(self) -> None:
        """Wait, where the class has something to wait for."""
        if hasattr(self._output, 'wait'):
            self._output.wait()
