"""The scope output, read back with scope's own reader, against the holes of its writer."""

import sys
import threading

import numpy as np
import pytest
import scope

from embodied import logging
from embodied.core.errors import UserError
from embodied.logging.scope import convert


def write(tmp_path, *writes):
    """Each write is a dict of metrics; the n-th one has step n."""
    output = logging.Scope(tmp_path)
    for step, metrics in enumerate(writes):
        values = {k: v if isinstance(v, str) else np.asarray(v) for k, v in metrics.items()}
        output.write([(step, name, value) for name, value in values.items()])
    output.close()
    return scope.Reader(tmp_path)


def test_scalars_texts_images_and_videos(tmp_path):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    reader = write(
        tmp_path,
        {'train/loss/rec': np.float32(0.5), 'note': 'hello', 'image': image},
        {'train/loss/rec': 2, 'video': np.zeros((3, 16, 16, 3), np.uint8)},
    )
    assert sorted(x.name for x in (tmp_path / 'scope').iterdir()) == [
        'image.png',
        'note.txt',
        'train-loss-rec.float',
        'video.mp4',
    ]
    steps, values = reader['train/loss/rec']
    assert (list(steps), list(values)) == ([0, 1], [0.5, 2])
    import PIL.Image

    (png,) = (tmp_path / 'scope' / 'image.png').glob('*.png')
    np.testing.assert_array_equal(np.asarray(PIL.Image.open(png)), image)
    (text,) = (tmp_path / 'scope' / 'note.txt').glob('*.txt')
    assert text.read_text() == 'hello'


def frames(path):
    (mp4,) = path.glob('*.mp4')
    return scope.formats.Video().decode(mp4.read_bytes())


@pytest.mark.parametrize(
    ('shape', 'expected'),
    [
        ((3, 5, 7, 3), (3, 6, 8, 3)),
        ((2, 16, 16, 1), (2, 16, 16, 3)),
        ((2, 16, 16, 4), (2, 16, 16, 3)),
        ((1, 1, 1, 3), (1, 2, 2, 3)),
    ],
)
def test_videos_of_any_size(tmp_path, shape, expected):
    write(tmp_path, {'v': np.full(shape, 200, np.uint8)})
    video = frames(tmp_path / 'scope' / 'v.mp4')
    assert video.shape == expected
    assert np.abs(video.astype(int) - 200).max() <= 3


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (np.array([[0.0, 0.5], [1.0, 2.0]]), [[0, 127], [255, 255]]),
        (np.array([[-1.0, np.nan], [np.inf, 1e-9]], np.float32), [[0, 0], [255, 0]]),
        (np.array([[True, False]]), [[255, 0]]),
        (np.array([[300, -5]], np.int32), [[255, 0]]),
    ],
)
def test_images_of_any_type(value, expected):
    kind, image = convert(value)
    assert (kind, image.dtype, image.shape[-1]) == ('image', np.uint8, 1)
    assert image[..., 0].tolist() == expected


@pytest.mark.parametrize(('channels', 'expected'), [(1, 1), (2, 1), (3, 3), (4, 3), (9, 1)])
def test_channels(channels, expected):
    assert convert(np.zeros((4, 4, channels), np.uint8))[1].shape == (4, 4, expected)


def test_vectors_and_empty_arrays_are_left_out(tmp_path):
    write(tmp_path, {'a': np.zeros(5), 'b': np.zeros((0, 4, 4, 3), np.uint8)})
    assert list((tmp_path / 'scope').iterdir()) == []


def test_names_that_scope_refuses_or_mixes_up(tmp_path):
    names = ['Loss', 'loss', 'a-b', 'a/b', 'a_b', '/x/', '..', 'é']
    reader = write(tmp_path, {name: i for i, name in enumerate(names)})
    found = {
        x.stem: reader[x.stem.replace('-', '/')][1][0] for x in (tmp_path / 'scope').iterdir()
    }
    assert sorted(found.values()) == list(range(len(names)))
    assert found['loss'] == 0
    assert found['a-b'] == 3


def test_a_metric_that_changes_its_kind(tmp_path):
    reader = write(tmp_path, {'x': 1}, {'x': 'text'}, {'x': 2})
    assert list(reader['x'][1]) == [1, 2]
    (text,) = (tmp_path / 'scope' / 'x_2.txt').glob('*.txt')
    assert text.read_text() == 'text'


def test_one_bad_metric_loses_no_other_and_repeats_none(tmp_path, monkeypatch, capsys):
    def fail(self, value):
        raise RuntimeError('encoder')

    monkeypatch.setattr(scope.formats.Image, 'encode', fail)
    output = logging.Scope(tmp_path)
    for step in range(2):
        with pytest.raises(RuntimeError, match='encoder'):
            output.write(
                [
                    (step, 'a', np.asarray(step)),
                    (step, 'bad', np.zeros((4, 4, 3), np.uint8)),
                    (step, 'z', np.asarray(step)),
                ]
            )
    for name in 'az':
        assert list(scope.Reader(tmp_path)[name][0]) == [0, 1]
    assert 'bad.png' in capsys.readouterr().out


def test_all_is_written_when_write_returns_and_no_thread_is_left(tmp_path):
    before = threading.active_count()
    output = logging.Scope(tmp_path)
    output.write([(0, 'v', np.zeros((20, 32, 32, 3), np.uint8)), (0, 'x', np.asarray(1.0))])
    assert frames(tmp_path / 'scope' / 'v.mp4').shape == (20, 32, 32, 3)
    assert threading.active_count() == before


def test_a_record_cut_by_a_kill_does_not_shift_later_ones(tmp_path):
    write(tmp_path, {'x': 1, 't': 'a'}, {'x': 2})
    for name in ('x.float', 't.txt/index'):
        with open(tmp_path / 'scope' / name, 'ab') as file:
            file.write(b'12345')
    reader = write(tmp_path, {'x': 3, 't': 'b'})
    assert list(reader['x'][1]) == [1, 2, 3]
    assert (tmp_path / 'scope' / 't.txt' / 'index').stat().st_size == 32


def test_rewind_forgets_what_comes_after_a_step(tmp_path):
    write(tmp_path, *({'x': i, 't': str(i)} for i in range(6)))
    output = logging.Scope(tmp_path)
    output.rewind(2)
    output.write([(3, 'x', np.asarray(30.0)), (3, 't', 'new')])
    reader = scope.Reader(tmp_path)
    assert [list(x) for x in reader['x']] == [[0, 1, 2, 3], [0, 1, 2, 30]]
    steps, files = reader['t']
    assert list(steps) == [0, 1, 2, 3]
    assert [x.read_text() for x in files] == ['0', '1', '2', 'new']


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'scope', None)
    with pytest.raises(UserError, match=r'scope==0\.6\.3.*logger\.outputs'):
        logging.Scope(tmp_path)
