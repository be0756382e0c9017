"""Open-loop videos that say what they show."""

import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import openloop


def frames(size, channels=3, sequences=2, length=4):
    truth = np.full((sequences, length, size, size, channels), 100, np.uint8)
    pred = jnp.full(truth.shape, 60 / 255)
    return np.asarray(openloop.video(jnp.asarray(truth), pred, 2))


@pytest.mark.parametrize(('size', 'factor'), [(64, 1), (8, 4), (96, 1), (30, 2)])
@pytest.mark.parametrize('channels', [1, 3, 4])
def test_labels_stand_left_of_the_magnified_video(size, factor, channels):
    video = frames(size, channels)
    found = openloop.label(video)
    height = factor * video.shape[1]
    assert found.shape[:2] == (len(video), height)
    margin = found.shape[2] - factor * video.shape[2]
    assert 25 <= margin <= 60
    np.testing.assert_array_equal(found[:, ::factor, margin::factor], video)
    assert (found[:, :, :margin] == found[:1, :, :margin, :1]).all()


def test_each_row_has_another_name_in_its_middle():
    video = frames(64)
    margin = openloop.label(video).shape[2] - video.shape[2]
    names = openloop.label(video)[0, :, :margin, 0]
    rows = np.array_split(names, 3)
    for row in rows:
        places = np.flatnonzero((row > 128).any(1))
        assert 5 <= len(places) <= 14
        assert abs(places.mean() - len(row) / 2) < 3
    ink = [int((row > 128).sum()) for row in rows]
    assert len(set(ink)) == 3
    assert min(ink) > 40


def test_reports_are_labelled(monkeypatch):
    from dreamerv3.agent import Agent, Runtime

    video = frames(8)
    metrics = {'openloop/image': video, 'loss/image': 1.0}
    monkeypatch.setattr(Runtime, 'report', lambda self, carry, data: (carry + 1, metrics))
    carry, found = Agent.report(object.__new__(Agent), 1, {})
    assert (carry, found['loss/image']) == (2, 1.0)
    assert found['openloop/image'].shape == openloop.label(video).shape
