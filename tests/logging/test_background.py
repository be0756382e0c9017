"""Outputs in threads of their own: order, bounds, errors, and the end."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from embodied import logging
from embodied.logging import notices


class Sink:
    """Keeps the steps that it is given, waits for `gate` if there is one, fails at will."""

    name = 'sink'

    def __init__(self, gate=None, fails=()):
        self.gate, self.fails = gate, fails
        self.events = []
        self.started = threading.Event()

    def write(self, summaries):
        self.started.set()
        if self.gate:
            self.gate.wait()
        (step, _, _) = summaries[0]
        self.events.append(step)
        if step in self.fails:
            raise OSError(f'disk full at {step}')

    def rewind(self, step):
        self.events.append(f'rewind {step}')

    def close(self):
        self.events.append('close')


def write(output, *steps, size=1):
    for step in steps:
        output.write([(step, 'x', np.zeros(size, np.uint8))])


def test_all_is_done_in_order_before_close_returns():
    sink = Sink()
    output = logging.Background(sink)
    output.rewind(3)
    write(output, *range(100))
    output.close()
    assert sink.events == ['rewind 3', *range(100), 'close']


def test_the_thread_ends_with_close_and_starts_again():
    before = threading.active_count()
    sink = Sink()
    output = logging.Background(sink)
    assert threading.active_count() == before
    write(output, 1)
    output.close()
    assert sink.events == [1, 'close']
    for thread in threading.enumerate():
        if thread.name == 'sink':
            thread.join(10)
    assert threading.active_count() == before


def test_a_waiting_output_does_not_hold_the_run():
    gate = threading.Event()
    slow, fast = Sink(gate), Sink()
    logger = logging.Logger(0, [logging.Background(slow), fast])
    for index in range(5):
        logger.add({'x': index})
        logger.write()
    assert fast.events == [0] * 5
    assert slow.events == []
    gate.set()
    logger.close()
    assert slow.events == [0] * 5 + ['close']


@pytest.mark.parametrize(('limits', 'size'), [({'writes': 3}, 1), ({'size': 30}, 10)])
def test_the_newest_is_left_out_when_the_queue_is_full(limits, size, capsys):
    gate = threading.Event()
    sink = Sink(gate)
    output = logging.Background(sink, **limits)
    write(output, *range(6), size=size)
    gate.set()
    assert output.flush()
    write(output, 6, size=size)
    output.close()
    assert sink.events == [0, 1, 2, 6, 'close']
    out = capsys.readouterr().out
    assert out == (
        'Warning: the logger output sink does not keep up; the newest metrics are left out\n'
    )


def test_one_write_may_be_larger_than_the_bound():
    sink = Sink()
    output = logging.Background(sink, size=10)
    write(output, 1, size=100)
    output.close()
    assert sink.events == [1, 'close']


def test_errors_name_the_output_once_and_stop_nothing(capsys):
    sink, other = Sink(fails=(0, 2)), Sink()
    logger = logging.Logger(np.array(0), [logging.Background(sink), logging.Background(other)])
    for index in range(4):
        logger.step += index > 0
        logger.add({'x': 1})
        logger.write()
    logger.close()
    assert sink.events == other.events == [0, 1, 2, 3, 'close']
    out = capsys.readouterr().out
    assert out.count('Warning') == 1
    assert 'the logger output sink failed' in out
    assert 'OSError: disk full at 0' in out


def test_close_gives_up_on_an_output_that_hangs(capsys):
    gate = threading.Event()
    sink = Sink(gate)
    output = logging.Background(sink, grace=0.01)
    write(output, 1, 2)
    sink.started.wait()
    output.close()
    assert 'did not end within 0 s; 2 writes are lost' in capsys.readouterr().out
    gate.set()
    assert output.flush()


def test_a_process_ends_although_an_output_hangs():
    code = """
import threading
from embodied import logging
class Hang:
    name = 'hang'
    def write(self, summaries):
        threading.Event().wait()
    def close(self):
        pass
logger = logging.Logger(0, [logging.Background(Hang(), grace=0.1)])
logger.add({'x': 1})
logger.close()
"""
    done = subprocess.run([sys.executable, '-c', code], timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b'hang did not end' in done.stdout


def test_one_notice_a_minute_that_counts_the_others(capsys):
    time = [100.0]
    notice = notices.Notices('x', lambda: time[0])
    for seconds in (0, 10, 40, 10, 0):
        time[0] += seconds
        notice.error(OSError('no\nspace'))
    lines = capsys.readouterr().out.splitlines()
    start = 'Warning: the logger output x failed and may miss metrics: OSError: no space'
    assert lines == [start, f'{start} (2 more warnings since the last one)']
