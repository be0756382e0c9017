"""Images and videos as the bytes of files: PNG, GIF and MP4.

Pixels of any type: floats and bools count from 0 to 1, integers from 0 to 255, what lies beyond
is clipped, and what is not a number is black. One channel is gray, three are RGB, a fourth is
left out, and of any other number the first is shown.
"""

import io
import os
from collections.abc import Iterable
from typing import Any

import numpy as np


def kind(value: Any) -> str:
    """Say what a metric is: text, scalar, vector, image, video, or other (an empty array)."""
    if isinstance(value, str):
        return 'text'
    if value.ndim and not value.size:
        return 'other'
    return ('scalar', 'vector', 'image', 'image', 'video')[value.ndim]


def pixels(value: np.ndarray) -> np.ndarray:
    """An image (H, W), (H, W, C) or video (T, H, W, C) as uint8 with 1 or 3 channels."""
    if value.dtype.kind in 'fb':
        value = np.nan_to_num(value.astype(np.float32).clip(0, 1)) * 255
    value = value.clip(0, 255).astype(np.uint8)
    if value.ndim == 2:
        value = value[..., None]
    return value[..., : 3 if value.shape[-1] in (3, 4) else 1]


def even(video: np.ndarray) -> np.ndarray:
    """A video whose height and width are even, as MP4 needs it: the last row is repeated."""
    height, width = video.shape[1:3]
    pad = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))
    return np.pad(video, pad, mode='edge')


def png(image: np.ndarray) -> bytes:
    """Encode an image."""
    file = io.BytesIO()
    _picture(image).save(file, 'PNG')
    return file.getvalue()


def gif(video: np.ndarray, fps: int) -> bytes:
    """Encode a video as an endless animation. Its times are multiples of 10 ms."""
    first, *rest = [_picture(frame) for frame in video]
    file = io.BytesIO()
    pause = max(20, round(100 / fps) * 10)  # browsers slow down what is faster
    first.save(file, 'GIF', save_all=True, append_images=rest, duration=pause, loop=0)
    return file.getvalue()


def mp4(video: Iterable[np.ndarray], fps: int) -> bytes:
    """Encode frames of one size."""
    file = io.BytesIO()
    writer = Mp4(file, fps)
    for frame in video:
        writer.add(frame)
    writer.close()
    return file.getvalue()


class Mp4:
    """Encodes frames one by one into a path or a binary file, so that few are in memory."""

    def __init__(self, file: Any, fps: int):
        import av

        self._av = av
        target = os.fspath(file) if isinstance(file, os.PathLike) else file
        self._output = av.open(target, mode='w', format='mp4')
        self._stream: Any = None
        self._fps = fps
        self.frames = 0

    def add(self, frame: np.ndarray) -> None:
        """Encode a frame (H, W) or (H, W, C). All frames have the size of the first."""
        frame = even(pixels(frame)[None])[0]
        frame = np.ascontiguousarray(np.broadcast_to(frame, (*frame.shape[:2], 3)))
        if self._stream is None:
            self._stream = self._output.add_stream('h264', rate=self._fps)
            self._stream.height, self._stream.width = frame.shape[:2]
            self._stream.pix_fmt = 'yuv420p'
        picture = self._av.VideoFrame.from_ndarray(frame, format='rgb24')
        picture.pts = self.frames
        self._output.mux(self._stream.encode(picture))
        self.frames += 1

    def close(self) -> None:
        """Finish the file."""
        if self._stream is not None:
            self._output.mux(self._stream.encode(None))
        self._output.close()


def _picture(image: np.ndarray) -> Any:
    import PIL.Image

    image = pixels(image)
    return PIL.Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
