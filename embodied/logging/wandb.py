"""Metrics for Weights & Biases: scalars, texts, histograms, images and videos.

The package's own variables choose the rest: WANDB_MODE=offline keeps everything on this
machine, WANDB_PROJECT and WANDB_ENTITY say where runs go. Nothing here asks at the terminal.
"""

import html
import io
import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import media
from .logger import Summary


class WandB:
    """Write one run of the service for a logdir, which a resumed run goes on with.

    name, config: how the run is shown there. fps: of videos. Without an API key it writes
    offline, to LOGDIR/wandb, for `wandb sync`. Raises UserError if the package is missing.

    >>> output = WandB('logdir', name='catch', config={'seed': 0})
    >>> output.close()  # nothing was written, so that no run was made
    """

    name = 'wandb'

    def __init__(
        self, logdir: str | os.PathLike, name: str, config: Mapping[str, Any], fps: int = 15
    ):
        try:
            import wandb
        except ImportError as error:
            raise UserError(
                f"The output wandb needs its package ({error}): pip install 'wandb>=0.31'."
            ) from error
        self._wandb = wandb
        self._folder = pathlib.Path(logdir).absolute()
        self._settings = {'name': name, 'config': dict(config)}
        self._fps = fps
        self._run: Any = None

    def write(self, summaries: list[Summary]) -> None:
        """Write every metric; the first error is raised after the last one."""
        errors: list[Exception] = []
        steps: dict[int, dict[str, Any]] = {}
        for step, name, value in summaries:
            try:
                steps.setdefault(step, {})[name] = self._value(value)
            except Exception as error:
                errors.append(error)
        self._run = self._run or self._start()
        for step in sorted(steps):
            values = {k: v for k, v in steps[step].items() if v is not None}
            self._run.log(values, step=step)
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Wait until the service has everything, or, offline, the disk."""
        if self._run:
            self._run.finish()
            self._run = None

    def _start(self) -> Any:
        """Begin or go on; without a key, or if the service does not answer, offline."""
        (self._folder / 'wandb').mkdir(parents=True, exist_ok=True)
        mode = os.environ.get('WANDB_MODE')
        if not mode and not self._wandb.login(prompt=False, verify=False):
            print('wandb: no API key (wandb login), so this run is kept offline', flush=True)
            mode = 'offline'
        try:
            return self._init(self._identity(), mode)
        except self._wandb.errors.CommError as error:
            reason = str(error).partition('\n')[0]
            print(f'wandb: {reason}; this run is kept offline', flush=True)
            return self._init(uuid.uuid4().hex[:8], 'offline')  # the other id is taken now

    def _init(self, identity: str, mode: str | None) -> Any:
        quiet = self._wandb.Settings(
            console='off', silent=True, init_timeout=30, finish_timeout=60
        )
        return self._wandb.init(
            project=os.environ.get('WANDB_PROJECT', 'dreamerv3'),
            dir=self._folder,
            id=identity,
            resume='allow',
            mode=mode,
            settings=quiet,
            **self._settings,
        )

    def _identity(self) -> str:
        """The id of the run, kept in the logdir."""
        path = self._folder / 'wandb' / 'id'
        if not path.exists():
            path.write_text(uuid.uuid4().hex[:8])
        return path.read_text()

    def _value(self, value: Any) -> Any:
        """A metric as the service takes it, None if there is nothing to show."""
        kind = media.kind(value)
        if kind == 'text':
            return self._wandb.Html(f'<pre>{html.escape(value)}</pre>', inject=False)
        if kind == 'scalar':
            return float(value)
        if kind == 'vector':
            finite = value[np.isfinite(value)]
            return self._wandb.Histogram(finite) if len(finite) else None
        if kind == 'image':
            return self._wandb.Image(media.pixels(value).squeeze())
        if kind == 'video':
            # Encoded here: from arrays the package would need a further one.
            return self._wandb.Video(io.BytesIO(media.mp4(value, self._fps)), format='mp4')
        return None
