"""What the terminal shows."""

import numpy as np
import pytest

from embodied import logging
from embodied.core.errors import UserError
from embodied.logging import terminal


def show(capsys, metrics, pattern='', step=1234567):
    output = logging.Terminal(pattern)
    values = {k: v if isinstance(v, str) else np.asarray(v) for k, v in metrics.items()}
    output.write([(step, name, value) for name, value in values.items()])
    output.close()
    return capsys.readouterr().out


def test_few_metrics_take_one_line(capsys):
    out = show(capsys, {'episode/score': 1.5, 'episode/length': 200.0})
    assert out == '[Step 1,234,567]  episode/score 1.5  episode/length 200\n'


def test_many_metrics_take_a_line_each(capsys):
    out = show(capsys, {'train/a': 1, 'train/longer': 2.25, 'b': 3e-7, 'c': np.float32('nan')})
    lines = out.splitlines()
    assert 'Step 1,234,567' in lines[1]
    assert lines[2:] == [
        '  train/a       1',
        '  train/longer  2.25',
        '  b             3e-07',
        '  c             nan',
    ]


def test_the_filter_chooses(capsys):
    out = show(capsys, {'train/loss/a': 1, 'train/x': 2, 'score': 3}, 'score|train/loss/')
    assert out == '[Step 1,234,567]  train/loss/a 1  score 3\n'


def test_only_scalars_and_a_sign_of_life(capsys):
    assert show(capsys, {'text': 'x', 'image': np.zeros((2, 2))}, step=5) == '[Step 5]\n'


def test_a_bad_filter_is_the_users(capsys):
    with pytest.raises(UserError, match=r'logger\.filter'):
        logging.Terminal('(')


@pytest.mark.parametrize(
    ('number', 'text'),
    [
        (0, '0'),
        (-0.0, '0'),
        (-3, '-3'),
        (12345, '12,345'),
        (1234.56, '1,234.6'),
        (0.1, '0.1'),
        (0.00123456, '0.001235'),
        (1.23456e-5, '1.23e-05'),
        (2e9, '2e+09'),
        (np.inf, 'inf'),
    ],
)
def test_numbers(number, text):
    assert terminal.format_number(np.asarray(number)) == text
