"""The logger: what reaches outputs, and outputs that fail."""

import elements
import ml_dtypes
import numpy as np
import pytest

from embodied import logging


class Sink:
    """Keeps what it is given; raises at the writes whose number is in `fails`."""

    def __init__(self, name='sink', fails=()):
        self.name = name
        self.fails = fails
        self.writes = []
        self.closed = 0

    def write(self, summaries):
        self.writes.append(summaries)
        if len(self.writes) - 1 in self.fails:
            raise OSError('disk full')

    def close(self):
        self.closed += 1


def names(write):
    return [(step, name) for step, name, _ in write]


def test_names_steps_and_values():
    sink = Sink()
    logger = logging.Logger(3, [sink], multiplier=4)
    logger.add({'loss': {'rec': 1.5, 'dyn': np.float32(2)}, 'n': 3}, prefix='train')
    logger.scalar('fps', 7)
    logger.add({'text': 'hello', 'np': np.str_('x'), 'flag': True})
    logger.write()
    assert names(sink.writes[0]) == [
        (12, 'train/loss/rec'),
        (12, 'train/loss/dyn'),
        (12, 'train/n'),
        (12, 'fps'),
        (12, 'text'),
        (12, 'np'),
        (12, 'flag'),
    ]
    values = [value for _, _, value in sink.writes[0]]
    assert values == [1.5, 2, 3, 7, 'hello', 'x', True]
    assert all(isinstance(x, (np.ndarray, str)) for x in values)


def test_the_step_is_that_of_adding():
    sink = Sink()
    step = np.array(0)
    logger = logging.Logger(step, [sink])
    logger.add({'a': 1})
    step += 5
    logger.add({'a': 2})
    logger.write()
    assert names(sink.writes[0]) == [(0, 'a'), (5, 'a')]


def test_nothing_is_written_twice_or_for_nothing():
    sink = Sink()
    logger = logging.Logger(0, [sink])
    logger.write()
    logger.add({'a': 1})
    logger.write()
    logger.write()
    logger.add({'b': 1})
    logger.close()
    assert [names(x) for x in sink.writes] == [[(0, 'a')], [(0, 'b')]]
    assert sink.closed == 1


def test_a_failing_output_is_reported_once_and_harms_nobody(capsys):
    before, bad, after = Sink('before'), Sink('bad', fails=(0, 2)), Sink('after')
    logger = logging.Logger(0, [before, bad, after])
    for index in range(4):
        logger.add({f'm{index}': index})
        logger.write()
    logger.close()
    expected = [[(0, f'm{index}')] for index in range(4)]
    for sink in (before, bad, after):
        assert [names(x) for x in sink.writes] == expected
        assert sink.closed == 1
    out = capsys.readouterr().out
    assert out.count('Warning') == 1
    assert 'bad failed' in out
    assert 'disk full' in out


def test_an_output_may_change_its_list():
    greedy, other = Sink('greedy'), Sink('other')
    greedy.write = list.clear
    logger = logging.Logger(0, [greedy, other])
    logger.add({'a': 1})
    logger.write()
    assert names(other.writes[0]) == [(0, 'a')]


def test_arrays_are_copied():
    sink = Sink()
    array = np.zeros(3)
    logger = logging.Logger(0, [sink])
    logger.add({'x': array})
    array += 1
    logger.write()
    np.testing.assert_array_equal(sink.writes[0][0][2], np.zeros(3))


def test_bfloat16_becomes_float32():
    sink = Sink()
    logger = logging.Logger(0, [sink])
    logger.add({'x': np.array([1.5, 2], ml_dtypes.bfloat16)})
    logger.write()
    assert sink.writes[0][0][2].dtype == np.float32
    assert sink.writes[0][0][2].tolist() == [1.5, 2]


@pytest.mark.parametrize('value', [None, object(), [None], np.array(['a', 'b']), 1j])
def test_other_types_are_named(value):
    with pytest.raises(TypeError, match="'bad/x'"):
        logging.Logger(0, []).add({'x': value}, prefix='bad')


def test_too_many_axes_are_named():
    with pytest.raises(ValueError, match=r"'x' has shape \(1, 1, 1, 1, 1\)"):
        logging.Logger(0, []).add({'x': np.zeros((1,) * 5)})
    with pytest.raises(ValueError, match=r"'x' has shape \(2,\)"):
        logging.Logger(0, []).scalar('x', [1, 2])


def test_rewind_reaches_outputs_that_keep_lines_in_env_frames(tmp_path):
    step = elements.Counter(5)
    outputs = [logging.JSONL(tmp_path), logging.Terminal('.*')]
    logger = logging.Logger(step, outputs, multiplier=4)
    logger.add({'a': 1})
    logger.write()
    logger.rewind(5)
    assert len((tmp_path / 'metrics.jsonl').read_text().splitlines()) == 1
    logger.rewind(4)
    assert (tmp_path / 'metrics.jsonl').read_text() == ''
