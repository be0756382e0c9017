"""Metrics for MLflow: scalars, and texts, vectors, images and videos as artifacts.

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, the package's own variables, say where they go;
without the first to a database in the logdir.
"""

import json
import logging
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import media
from .logger import Summary

BATCH = 1000  # scalars of one request, the service's limit
REFUSED = re.compile(r'[^\w\-. /]')  # in names


class MLFlow:
    """Write one MLflow run for a logdir, which a resumed run goes on with.

    name, params: how the run is shown there. fps: of videos. Raises UserError if the package is
    missing.

    >>> output = MLFlow('logdir', name='catch', params={'seed': 0})
    >>> output.close()  # nothing was written, so that no run was made
    """

    name = 'mlflow'

    def __init__(
        self, logdir: str | os.PathLike, name: str, params: Mapping[str, Any], fps: int = 15
    ):
        try:
            import mlflow
        except ImportError as error:
            raise UserError(
                f'The output mlflow needs its packages ({error}): pip install '
                "'mlflow-skinny>=3' 'sqlalchemy>=2' 'alembic>=1.13'."
            ) from error
        logging.getLogger('mlflow').setLevel(logging.WARNING)  # not each table that it makes
        self._mlflow = mlflow
        self._folder = pathlib.Path(logdir).absolute()
        self._title, self._params = name, dict(params)
        self._fps = fps
        self._client: Any = None
        self._run = ''

    def write(self, summaries: list[Summary]) -> None:
        """Send every metric; the first error is raised after the last one."""
        if self._client is None:
            self._start()
        now = int(time.time() * 1000)
        metrics, errors = [], []
        for step, name, value in summaries:
            name = REFUSED.sub('_', name)
            try:
                if media.kind(value) == 'scalar':
                    metrics.append(self._mlflow.entities.Metric(name, float(value), now, step))
                else:
                    self._artifact(step, name, value)
            except Exception as error:
                errors.append(error)
        for start in range(0, len(metrics), BATCH):
            self._client.log_batch(self._run, metrics[start : start + BATCH])
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Mark the run as finished."""
        if self._client is not None:
            self._client.set_terminated(self._run)

    def _start(self) -> None:
        """Begin a run, or go on with that of the logdir."""
        self._folder.mkdir(parents=True, exist_ok=True)
        here = None
        if not os.environ.get('MLFLOW_TRACKING_URI'):
            here = f'sqlite:///{self._folder.absolute() / "mlflow.db"}'
        client = self._mlflow.MlflowClient(here)
        path = self._folder / 'mlflow-run'
        if path.exists():
            self._run = path.read_text()
            client.update_run(self._run, status='RUNNING')
        else:
            experiment = os.environ.get('MLFLOW_EXPERIMENT_NAME', 'dreamerv3')
            found = client.get_experiment_by_name(experiment)
            files = here and (self._folder.absolute() / 'mlflow').as_uri()
            number = (
                found.experiment_id if found else client.create_experiment(experiment, files)
            )
            self._run = client.create_run(number, run_name=self._title).info.run_id
            path.write_text(self._run)
            for key, value in self._params.items():
                client.log_param(self._run, key, value)
        self._client = client

    def _artifact(self, step: int, name: str, value: Any) -> None:
        """Store what is no scalar under its name, a file per step."""
        kind = media.kind(value)
        if kind == 'other':
            return
        content, ending = {
            'text': lambda: (value.encode(), 'txt'),
            'vector': lambda: (_json(value), 'json'),
            'image': lambda: (media.png(value), 'png'),
            'video': lambda: (media.mp4(value, self._fps), 'mp4'),
        }[kind]()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f'{step:012d}.{ending}'
            path.write_bytes(content)
            self._client.log_artifact(self._run, str(path), name)


def _json(vector: np.ndarray) -> bytes:
    """Numbers as strict JSON, with null for what is not finite."""
    return json.dumps([x if np.isfinite(x) else None for x in vector.tolist()]).encode()
