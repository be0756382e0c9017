"""The logger: collects metrics and hands them to outputs that cannot disturb each other."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..core.waiting import Wait
from .notices import Notices

Summary = tuple[int, str, Any]  # step on the x axis, name, array or str


class Output(Protocol):
    """Take summaries: a file, the terminal, a viewer.

    An output may also have `rewind(step)`, `progress(…)`, `busy(text)` and `watch(…)`, which
    are those of the logger. It must not change the arrays, which all outputs share.

    >>> class Lines:
    ...     name = 'lines'
    ...     def write(self, summaries):
    ...         for step, name, value in summaries:
    ...             print(step, name, value)
    ...     def close(self): pass
    >>> output: Output = Lines()
    >>> output.write([(10, 'loss', np.array(0.5))])
    10 loss 0.5
    """

    name: str

    def write(self, summaries: list[Summary]) -> None:
        """Take everything that was added since the last call, in the order of adding."""

    def close(self) -> None:
        """Finish what is still being written."""


class Logger:
    """Collect metrics between writes.

    step: counter of env steps, something that `int()` reads. multiplier: env frames per step
    (the action repeat), for the x axis alone. An output that raises is reported by its name,
    once a minute at most, and neither stops the others nor the run. `Background` keeps the run
    from waiting for an output.

    >>> step = elements.Counter(10)
    >>> logger = Logger(step, [embodied.logging.Terminal('loss')], multiplier=4)
    >>> logger.add({'loss': {'image': 0.5}, 'fps': 100.0}, prefix='train')
    >>> logger.write()
    [Step 40]  train/loss/image 0.5
    >>> logger.close()
    """

    def __init__(self, step: Any, outputs: Iterable[Output], multiplier: int = 1):
        self.step = step
        self.outputs = list(outputs)
        self.multiplier = multiplier
        self._pending: list[Summary] = []
        self._notices: dict[str, Notices] = {}

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
        """Tell the outputs that the run goes on from this env step."""
        self._tell('rewind', int(step) * self.multiplier)

    def progress(self, total: float, **state: float) -> None:
        """Tell the outputs that show it how far the run is, see `live.Line`."""
        self._tell('progress', int(self.step), total, **state)

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show what the run waits for, in the outputs that can."""
        self._tell('busy', text)
        try:
            yield
        finally:
            self._tell('busy', '')

    def watch(self, transition: Mapping[str, Any], worker: int) -> None:
        """Show a step of an evaluation to the outputs that film episodes."""
        self._tell('watch', int(self.step) * self.multiplier, transition, worker)

    def close(self) -> None:
        """Write what is left, and close every output once it has written everything."""
        self.write()
        for output in self.outputs:
            with Wait(f'the output {output.name} to finish'):
                self._try(output.name, output.close)

    def _tell(self, method: str, *args: Any, **kwargs: Any) -> None:
        for output in self.outputs:
            if hasattr(output, method):
                self._try(output.name, getattr(output, method), *args, **kwargs)

    def _try(self, name: str, fn: Any, *args: Any, **kwargs: Any) -> None:
        try:
            fn(*args, **kwargs)
        except Exception as error:
            self._notices.setdefault(name, Notices(name)).error(error)


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
