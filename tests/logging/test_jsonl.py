"""metrics.jsonl and scores.jsonl: strict JSON, a line per write, in rising steps."""

import json
import math
import re
import subprocess
import sys

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


def test_what_comes_later_for_a_step_joins_its_line(tmp_path):
    output = logging.JSONL(tmp_path)
    output.write([summary(1, 'a', 1), summary(2, 'a', 2)])
    output.write([summary(2, 'b', 3), summary(2, 'a', 4)])
    output.write([summary(2, 'c', 5), summary(3, 'a', 6)])
    assert read(tmp_path / 'metrics.jsonl') == [
        {'step': 1, 'a': 1},
        {'step': 2, 'a': 4, 'b': 3, 'c': 5},
        {'step': 3, 'a': 6},
    ]


def test_a_removed_file_starts_anew(tmp_path):
    output = logging.JSONL(tmp_path)
    output.write([summary(1, 'a', 1)])
    (tmp_path / 'metrics.jsonl').unlink()
    output.write([summary(1, 'b', 2)])
    assert read(tmp_path / 'metrics.jsonl') == [{'step': 1, 'b': 2}]


def test_rewind_moves_later_lines_to_a_side_file(tmp_path, capsys):
    output = logging.JSONL(tmp_path)
    for step in range(1, 6):
        output.write([summary(step, 'a', step)])
    side = output.rewind(3)
    assert re.fullmatch(r'metrics-\d{8}T\d{6}F\d{6}\.jsonl', side.name)
    assert [x['step'] for x in read(side)] == [4, 5]
    out = capsys.readouterr().out
    assert out == f'metrics.jsonl: 2 lines beyond step 3 moved to {side.name}\n'
    output.write([summary(5, 'b', 7)])  # the moved line of step 5 takes nothing more
    assert read(tmp_path / 'metrics.jsonl')[2:] == [{'step': 3, 'a': 3}, {'step': 5, 'b': 7}]
    assert sorted(x.name for x in tmp_path.iterdir()) == [side.name, 'metrics.jsonl']


def test_rewind_without_later_lines_changes_nothing(tmp_path, capsys):
    output = logging.JSONL(tmp_path)
    assert output.rewind(0) is None
    output.write([summary(3, 'a', 1)])
    assert output.rewind(3) is None
    assert capsys.readouterr().out == ''
    assert [x.name for x in tmp_path.iterdir()] == ['metrics.jsonl']


def test_rewind_reads_lines_of_other_writers(tmp_path):
    (tmp_path / 'metrics.jsonl').write_text('{"x": 1, "step": 4.0}\n{"x": 2, "step": 9}\n')
    side = logging.JSONL(tmp_path).rewind(5)
    assert read(side) == [{'x': 2, 'step': 9}]


FULL = """
import resource, signal, sys
import numpy as np
from embodied import logging
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
output = logging.JSONL(sys.argv[1])
output.write([(0, 'x', np.asarray(0.0)), (1, 'x', np.asarray(1.0))])
resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))
for step in (1, 2):
    try:
        output.write([(step, 'y' * 30, np.asarray(0.0))])
    except OSError as error:
        print('failed')
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
output.write([(1, 'z', np.asarray(3.0))])
"""


def test_a_full_disk_leaves_whole_lines(tmp_path):
    done = subprocess.run(
        [sys.executable, '-c', FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.split() == ['failed'] * 2, done.stderr
    assert read(tmp_path / 'metrics.jsonl') == [
        {'step': 0, 'x': 0}, {'step': 1, 'x': 1, 'z': 3}
    ]  # fmt: skip
