"""Images and videos as files, read back."""

import io

import av
import numpy as np
import PIL.Image
import pytest

from embodied.logging import media


@pytest.mark.parametrize(
    ('value', 'kind'),
    [
        ('x', 'text'),
        (np.float32(1), 'scalar'),
        (np.zeros(3), 'vector'),
        (np.zeros(0), 'other'),
        (np.zeros((2, 3)), 'image'),
        (np.zeros((2, 3, 4)), 'image'),
        (np.zeros((2, 3, 4, 1)), 'video'),
        (np.zeros((0, 3, 4, 1)), 'other'),
    ],
)
def test_kinds(value, kind):
    assert media.kind(value) == kind


@pytest.mark.parametrize('channels', [(), (1,), (3,), (4,), (7,)])
@pytest.mark.parametrize('dtype', [np.uint8, np.float32, bool])
def test_images_of_any_shape_and_type(channels, dtype):
    image = np.zeros((5, 7, *channels), dtype)
    image[1, 2] = 1
    found = np.asarray(PIL.Image.open(io.BytesIO(media.png(image))))
    assert found.shape == ((5, 7, 3) if channels in ((3,), (4,)) else (5, 7))
    assert (found[1, 2] == (1 if dtype == np.uint8 else 255)).all()
    assert np.count_nonzero(found.reshape(35, -1).any(-1)) == 1


def test_gif():
    video = np.zeros((3, 5, 7, 3), np.uint8)
    video[1], video[2] = 255, (255, 0, 0)
    image = PIL.Image.open(io.BytesIO(media.gif(video, 15)))
    assert (image.n_frames, image.size, image.info['loop']) == (3, (7, 5), 0)
    assert image.info['duration'] == 70
    for index, color in enumerate([(0, 0, 0), (255, 255, 255), (255, 0, 0)]):
        image.seek(index)
        found = np.asarray(image.convert('RGB')).astype(int)
        assert np.abs(found - color).max() <= 3


@pytest.mark.parametrize('shape', [(4, 5, 7, 3), (2, 8, 8), (2, 8, 6, 1), (3, 6, 6, 4)])
def test_mp4(shape, tmp_path):
    path = tmp_path / 'x.mp4'
    writer = media.Mp4(path, 10)
    for index in range(shape[0]):
        writer.add(np.full(shape[1:], 50 * index, np.uint8))
    writer.close()
    with av.open(path) as container:
        assert container.streams.video[0].average_rate == 10
        frames = [x.to_ndarray(format='rgb24') for x in container.decode(video=0)]
    height, width = (x + x % 2 for x in shape[1:3])
    assert np.shape(frames) == (shape[0], height, width, 3)
    for index, frame in enumerate(frames):
        assert np.abs(frame.astype(int) - 50 * index).max() <= 4
    assert media.mp4(np.zeros(shape, np.uint8), 10).startswith(path.read_bytes()[:8])
