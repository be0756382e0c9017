"""The logger: collects metrics and hands them to outputs that cannot disturb each other."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

Summary = tuple[int, str, Any]  # step on the x axis, name, array or str


class Output(Protocol):
    """Where summaries go: a file, the terminal, a viewer."""

    name: str

    def write(self, summaries: list[Summary]) -> None:
        """Take everything that was added since the last call, in the order of adding."""

    def close(self) -> None:
        """Finish what is still being written."""


class Logger:
    """Collects metrics between writes.

    step: counter of env steps, something that `int()` reads. multiplier: env frames per step
    (the action repeat), for the x axis alone. An output that raises is reported once, by its
    name, and neither stops the others nor the run.
    """

    def __init__(self, step: Any, outputs: Iterable[Output], multiplier: int = 1):
        self.step = step
        self.outputs = list(outputs)
        self.multiplier = multiplier
        self._pending: list[Summary] = []
        self._reported: set[str] = set()

    def add(self, mapping: Mapping[str, Any], prefix: str | None = None) -> None:
        """Collect metrics under the current step; nested names are joined by '/'.

        Values are scalars, vectors, images (H, W) or (H, W, C), videos (T, H, W, C), or str.
        Arrays are copied. Raises TypeError or ValueError, with the name, for anything else.
        """
        step = int(self.step) * self.multiplier
        for key, value in mapping.items():
            name = f'{prefix}/{key}' if prefix else key
            if isinstance(value, Mapping):
                self.add(value, name)
            else:
                self._pending.append((step, name, _normalise(name, value)))

    def scalar(self, name: str, value: Any) -> None:
        """Collect one number. Raises ValueError if it has axes."""
        if np.ndim(value):
            raise ValueError(f'{name!r} has shape {np.shape(value)}; expected a scalar.')
        self.add({name: value})

    def write(self) -> None:
        """Hand everything collected to every output, once."""
        summaries, self._pending = self._pending, []
        if summaries:
            for output in self.outputs:
                self._try(output.name, output.write, list(summaries))

    def rewind(self, step: int) -> None:
        """Tell the outputs that keep lines that the run goes on from this env step."""
        for output in self.outputs:
            if hasattr(output, 'rewind'):
                self._try(output.name, output.rewind, int(step) * self.multiplier)

    def close(self) -> None:
        """Write what is left and close every output."""
        self.write()
        for output in self.outputs:
            self._try(output.name, output.close)

    def _try(self, name: str, fn: Any, *args: Any) -> None:
        try:
            fn(*args)
        except Exception as error:
            if name not in self._reported:
                self._reported.add(name)
                print(
                    f'Warning: the logger output {name} failed and may miss metrics: '
                    f'{type(error).__name__}: {error}',
                    flush=True,
                )


def _normalise(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    array = np.array(value)
    if array.dtype.kind in 'US' and array.ndim == 0:
        return str(array.astype(str))
    if array.dtype.type.__module__ == 'ml_dtypes':  # bfloat16 and the like
        array = array.astype(np.float32)
    if array.dtype.kind not in 'biuf':
        raise TypeError(f'{name!r} is {value!r:.60}; expected numbers or a string.')
    if array.ndim > 4:
        raise ValueError(f'{name!r} has shape {array.shape}; expected at most four axes.')
    return array
