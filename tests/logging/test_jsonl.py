"""metrics.jsonl and scores.jsonl: strict JSON, a line per write, in rising steps."""

import json
import math

import numpy as np
import pytest

from embodied import logging


def refuse(token):
    raise AssertionError(f'{token} is not JSON')


def read(path):
    text = path.read_text()
    assert text == '' or text.endswith('\n')
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def summary(step, name, value):
    return step, name, value if isinstance(value, str) else np.asarray(value)


def test_a_line_per_write_with_the_step_first(tmp_path):
    output = logging.JSONL(tmp_path / 'run')
    output.write(
        [summary(3, 'b/x', 1), summary(3, 'a', np.float32(0.5)), summary(3, 'c', True)]
    )
    output.write([summary(4, 'a', -2)])
    output.close()
    lines = (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()
    assert lines == ['{"step": 3, "b/x": 1.0, "a": 0.5, "c": 1.0}', '{"step": 4, "a": -2.0}']


def test_only_scalars(tmp_path):
    logging.JSONL(tmp_path).write(
        [
            summary(1, 'text', 'hello'),
            summary(1, 'vector', np.zeros(3)),
            summary(1, 'image', np.zeros((2, 2, 3), np.uint8)),
            summary(1, 'scalar', 1),
        ]
    )
    assert read(tmp_path / 'metrics.jsonl') == [{'step': 1, 'scalar': 1}]


def test_scores_alone(tmp_path):
    output = logging.JSONL(tmp_path, 'scores.jsonl', '^episode/score$')
    output.write([summary(7, 'episode/score', 2), summary(7, 'episode/length', 5)])
    output.write([summary(8, 'train/loss', 2)])
    assert read(tmp_path / 'scores.jsonl') == [{'step': 7, 'episode/score': 2}]


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf, np.float32('nan')])
def test_what_is_not_finite_becomes_null(tmp_path, value):
    logging.JSONL(tmp_path).write([summary(1, 'x', value), summary(1, 'y', 2)])
    assert read(tmp_path / 'metrics.jsonl') == [{'step': 1, 'x': None, 'y': 2}]


def test_steps_rise_within_a_write(tmp_path):
    logging.JSONL(tmp_path).write(
        [summary(9, 'a', 1), summary(2, 'a', 2), summary(9, 'b', 3), summary(5, 'a', 4)]
    )
    assert read(tmp_path / 'metrics.jsonl') == [
        {'step': 2, 'a': 2},
        {'step': 5, 'a': 4},
        {'step': 9, 'a': 1, 'b': 3},
    ]


@pytest.mark.parametrize('whole', ['', '{"step": 1, "x": 2.0}\n'])
@pytest.mark.parametrize('cut', ['', '{"step": 2, "x', '{'])
def test_a_line_cut_by_a_kill_is_dropped(tmp_path, whole, cut):
    (tmp_path / 'metrics.jsonl').write_text(whole + cut)
    logging.JSONL(tmp_path).write([summary(3, 'x', 4)])
    steps = [line['step'] for line in read(tmp_path / 'metrics.jsonl')]
    assert steps == ([1, 3] if whole else [3])
