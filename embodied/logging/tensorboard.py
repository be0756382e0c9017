"""Event files for TensorBoard: scalars, texts, histograms, images, and videos as GIFs.

Written with the records and messages of the package tensorboard itself, which needs no
TensorFlow. Each process has a file of its own, as TensorBoard expects it.
"""

import contextlib
import os
import pathlib
import re
import socket
import time
from typing import Any

import numpy as np

from ..core.errors import UserError
from . import media
from .logger import Summary

BINS = 30  # of a histogram
TIME = re.compile(r'events\.out\.tfevents\.(\d{10}\.\d{6})')


class TensorBoard:
    """Write all metrics under their names to LOGDIR/events.out.tfevents.…

    fps: of the videos. Raises UserError if the package is missing.

    >>> output = TensorBoard('logdir')
    >>> output.write([(10, 'loss', np.array(0.5)), (10, 'weights', np.arange(9.0))])
    >>> output.close()
    >>> import os
    >>> len(os.listdir('logdir'))
    1
    """

    name = 'tensorboard'

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
            from tensorboard.summary.writer import record_writer
        except ImportError as error:
            raise UserError(
                f'The output tensorboard needs its package ({error}): pip install '
                "'tensorboard>=2.18'."
            ) from error
        self._events, self._summaries = event_pb2, summary_pb2
        self._tensors, self._types = tensor_pb2, types_pb2
        self._records = record_writer.RecordWriter
        self._folder = pathlib.Path(logdir).absolute()
        self._fps = fps
        self._file: Any = None

    def write(self, summaries: list[Summary]) -> None:
        """Write and flush; the first error is raised after the last metric."""
        errors: list[Exception] = []
        steps: dict[int, list[Any]] = {}
        for step, name, value in summaries:
            try:
                if (found := self._value(name, value)) is not None:
                    steps.setdefault(step, []).append(found)
            except Exception as error:
                errors.append(error)
        for step in sorted(steps):
            summary = self._summaries.Summary(value=steps[step])
            self._write(self._events.Event(step=step, summary=summary))
        if errors:
            raise errors[0]

    def rewind(self, step: int) -> None:
        """Have readers forget what earlier files hold beyond a step."""
        if any(self._folder.glob('events.out.tfevents.*')):
            log = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(self._events.Event(step=step + 1, session_log=log))

    def close(self) -> None:
        """Close the file."""
        if self._file:
            file, self._file = self._file, None
            file.close()

    def _write(self, event: Any) -> None:
        try:
            if self._file is None:
                self._open()
            event.wall_time = time.time()
            self._file.write(event.SerializeToString())
            self._file.flush()
        except OSError:  # the rest of a record that was cut would not be read
            with contextlib.suppress(OSError):
                self.close()
            raise

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Readers take the files in the order of their names, and never go back to earlier ones.
        there = [TIME.match(x.name) for x in self._folder.iterdir()]
        newest = max((float(x[1]) for x in there if x), default=0.0)
        now = max(time.time(), newest + 1e-5)
        stamp = f'{now:.6f}.{socket.gethostname()}.{os.getpid()}'
        file = open(self._folder / f'events.out.tfevents.{stamp}', 'xb')  # noqa: SIM115
        self._file = self._records(file)
        event = self._events.Event(wall_time=time.time(), file_version='brain.Event:2')
        self._file.write(event.SerializeToString())

    def _value(self, name: str, value: Any) -> Any:
        """A metric as a value of TensorBoard's, None if there is nothing to show."""
        make = getattr(self, f'_{media.kind(value)}', None)
        return make and self._summaries.Summary.Value(tag=name, **make(value))

    def _scalar(self, value: np.ndarray) -> dict:
        return {'simple_value': float(value)}

    def _text(self, value: str) -> dict:
        tensor = self._tensors.TensorProto(
            dtype=self._types.DT_STRING, string_val=[value.encode()]
        )
        data = self._summaries.SummaryMetadata.PluginData(plugin_name='text')
        metadata = self._summaries.SummaryMetadata(plugin_data=data)
        return {'tensor': tensor, 'metadata': metadata}

    def _vector(self, value: np.ndarray) -> dict:
        numbers = value.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        counts, edges = np.histogram(numbers, BINS)  # from 0 to 1 if there is no number
        histogram = self._summaries.HistogramProto(
            min=min(numbers, default=0),
            max=max(numbers, default=0),
            num=len(numbers),
            sum=numbers.sum(),
            sum_squares=np.square(numbers).sum(),
            bucket_limit=edges[1:],
            bucket=counts,
        )
        return {'histo': histogram}

    def _image(self, value: np.ndarray) -> dict:
        return self._picture(media.png(value), value.shape[:2])

    def _video(self, value: np.ndarray) -> dict:
        return self._picture(media.gif(value, self._fps), value.shape[1:3])

    def _picture(self, content: bytes, size: tuple[int, ...]) -> dict:
        image = self._summaries.Summary.Image(
            height=size[0], width=size[1], colorspace=3, encoded_image_string=content
        )
        return {'image': image}
