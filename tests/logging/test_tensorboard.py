"""Event files, read back with TensorBoard's own reader."""

import errno
import io
import resource
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
from tensorboard.backend.event_processing import event_accumulator

from embodied import logging
from embodied.core.errors import UserError


def write(folder, *writes):
    """Each write is a dict of metrics; the n-th one has step n."""
    output = logging.TensorBoard(folder)
    for step, metrics in enumerate(writes):
        values = {k: v if isinstance(v, str) else np.asarray(v) for k, v in metrics.items()}
        output.write([(step, name, value) for name, value in values.items()])
    output.close()
    return read(folder)


def read(folder):
    guidance = dict.fromkeys(('scalars', 'images', 'histograms', 'tensors'), 0)
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance=guidance)
    return reader.Reload()


def scalars(reader, name):
    return [(x.step, x.value) for x in reader.Scalars(name)]


def test_scalars_keep_their_names(tmp_path):
    reader = write(
        tmp_path,
        {'Train/Loss.Rec': np.float32(0.5), 'a-b': 1, 'é': True},
        {'Train/Loss.Rec': np.nan},
    )
    assert reader.Tags()['scalars'] == ['Train/Loss.Rec', 'a-b', 'é']
    (_, first), (step, second) = scalars(reader, 'Train/Loss.Rec')
    assert (first, step) == (0.5, 1)
    assert np.isnan(second)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith('events.out.tfevents.')


def test_texts_and_vectors(tmp_path):
    vector = np.array([0, 1, 1, 4, np.nan, np.inf], np.float32)
    reader = write(tmp_path, {'note': 'hello', 'v': vector, 'none': [np.nan], 'empty': []})
    assert reader.Tensors('note')[0].tensor_proto.string_val == [b'hello']
    histogram = reader.Histograms('v')[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0, 4, 4, 6)
    assert sum(histogram.bucket) == 4
    assert len(histogram.bucket) == len(histogram.bucket_limit)
    assert reader.Histograms('none')[0].histogram_value.num == 0
    assert reader.Tags()['histograms'] == ['v', 'none']


@pytest.mark.parametrize(
    ('value', 'format', 'size', 'frames'),
    [
        (np.random.default_rng(0).random((5, 7)), 'PNG', (7, 5), 1),
        (np.zeros((5, 7, 4), np.uint8), 'PNG', (7, 5), 1),
        (np.arange(3 * 5 * 7 * 3).reshape(3, 5, 7, 3) % 256, 'GIF', (7, 5), 3),
    ],
)
def test_images_and_videos(tmp_path, value, format, size, frames):
    reader = write(tmp_path, {'Picture': value})
    found = reader.Images('Picture')[0]
    image = PIL.Image.open(io.BytesIO(found.encoded_image_string))
    assert (image.format, image.size, getattr(image, 'n_frames', 1)) == (format, size, frames)
    assert (found.width, found.height) == size


def test_steps_beyond_the_one_that_a_run_goes_on_from_are_forgotten(tmp_path):
    write(tmp_path, *({'x': i} for i in range(6)))
    output = logging.TensorBoard(tmp_path)
    output.rewind(2)
    output.write([(3, 'x', np.asarray(30.0))])
    output.close()
    assert scalars(read(tmp_path), 'x') == [(0, 0), (1, 1), (2, 2), (3, 30)]


def test_a_new_run_is_not_rewound(tmp_path):
    output = logging.TensorBoard(tmp_path / 'new')
    output.rewind(0)
    output.close()
    assert not (tmp_path / 'new').exists()


def test_one_bad_metric_loses_no_other(tmp_path, monkeypatch):
    output = logging.TensorBoard(tmp_path)
    monkeypatch.setattr(output, '_image', lambda value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        output.write(
            [(0, 'a', np.asarray(1)), (0, 'bad', np.zeros((2, 2))), (0, 'z', np.asarray(2))]
        )
    output.close()
    assert read(tmp_path).Tags()['scalars'] == ['a', 'z']


FULL = """
import resource, signal, sys
import numpy as np
from embodied import logging
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
output = logging.TensorBoard(sys.argv[1])
output.write([(0, 'x', np.asarray(0.0))])
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
for step in (1, 2):
    try:
        output.write([(step, 'x' * 200, np.asarray(0.0))])
    except OSError as error:
        print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
output.write([(3, 'x', np.asarray(3.0))])
output.close()
"""


def test_a_full_disk_damages_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, '-c', FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.split() == [str(errno.EFBIG)] * 2, done.stderr
    assert scalars(read(tmp_path), 'x') == [(0, 0), (3, 3)]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorboard.compat.proto', None)
    with pytest.raises(UserError, match="pip install 'tensorboard>="):
        logging.TensorBoard(tmp_path)


def test_there_is_no_tensorflow(tmp_path):
    code = (
        'import sys, numpy as np\n'
        'from embodied import logging\n'
        f'output = logging.TensorBoard({str(tmp_path)!r})\n'
        "output.write([(0, 'x', np.asarray(1)), (0, 'v', np.zeros((2, 4, 4, 3)))])\n"
        "print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout == 'False\n', done.stderr


def test_files_rise_when_the_clock_is_set_back(tmp_path, monkeypatch):
    """TensorBoard reads them by name and never goes back."""
    for now in (4e9, 4e9 - 3600, 4e9 - 7200):
        monkeypatch.setattr(logging.tensorboard.time, 'time', lambda now=now: now)
        write(tmp_path, {'a': now})
        monkeypatch.undo()
    reader = read(tmp_path)
    values = [values for _, values in scalars(reader, 'a')]
    assert values[-1] == np.float32(4e9 - 7200)
    assert len({*tmp_path.iterdir()}) == 3
