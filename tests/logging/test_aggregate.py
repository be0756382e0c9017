"""Means and last values between two logs."""

import math

import numpy as np

from embodied import logging


def test_means_of_scalars():
    agg = logging.Aggregate()
    agg.add({'a': 1, 'b': np.float32(0.5)}, prefix='train')
    agg.add({'a': np.array(4), 'c': True}, prefix='train')
    assert agg.result() == {'train/a': 2.5, 'train/b': 0.5, 'train/c': 1}
    assert agg.result() == {}


def test_last_of_everything_else():
    agg = logging.Aggregate()
    for value in (1, 2):
        agg.add({'vector': np.full(3, value), 'text': str(value)})
    result = agg.result()
    assert result['vector'].tolist() == [2, 2, 2]
    assert result['text'] == '2'


def test_the_callers_arrays_stay_as_they_are():
    agg = logging.Aggregate()
    vector, scalar = np.ones(3), np.array(1.0)
    for _ in range(3):
        agg.add({'vector': vector, 'scalar': scalar})
    vector += 1
    result = agg.result()
    result['vector'] += 5
    assert result['vector'].tolist() == [6, 6, 6]
    assert vector.tolist() == [2, 2, 2]
    assert (scalar, result['scalar']) == (1, 1)


def test_a_mean_is_not_rounded_on_the_way():
    agg = logging.Aggregate()
    for _ in range(1000):
        agg.add({'x': np.float32(0.1), 'y': np.float16(60000)})
    result = agg.result()
    assert math.isclose(result['x'], np.float64(np.float32(0.1)))
    assert result['y'] == float(np.float16(60000))
