"""The live line of a terminal, drawn into memory."""

import io
import sys

import numpy as np
import pytest
import rich.console

from embodied import logging
from embodied.core import signals
from embodied.logging import live


class Time:
    """A clock that stands still until it is moved."""

    value = 0.0

    def __call__(self):
        return self.value


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def line(screen):
    console = rich.console.Console(
        file=screen, force_terminal=True, width=160, color_system=None, _environ={}
    )
    line = live.Line(console, Time())
    yield line
    line.stop()


def shown(line, screen):
    """What the last drawing shows."""
    screen.truncate(screen.seek(0))
    line._bar.refresh()
    return screen.getvalue()


def test_step_rates_time_and_score(line, screen):
    line.progress(100, 1000, updates=10)
    line._now.value = 10
    line.score = '3.5'
    line.progress(150, 1000, updates=15)
    text = shown(line, screen)
    for part in (
        'Training',
        'step 150 / 1,000',
        '5.0 env steps/s',
        '0.50 updates/s',
        'score 3.5',
    ):
        assert part in text
    assert '0:02:50 left' in text


def test_rates_are_those_of_the_last_half_minute(line, screen):
    for second, step in ((0, 0), (100, 1000), (120, 2000), (140, 3000)):
        line._now.value = second
        line.progress(step, 10**4)
    assert '50.0 env steps/s' in shown(line, screen)


def test_a_run_that_ends_by_time(line, screen):
    line.progress(0, 1e10)
    line._now.value = 1
    line.progress(10, 1e10, left=59.0)
    assert '0:00:59 left' in shown(line, screen)


def test_the_replay_fills_and_episodes_count(line, screen):
    line.progress(20, 1000, filled=20, minimum=80)
    assert 'Filling the replay' in shown(line, screen)
    line.progress(20, 1e10, episodes=3, wanted=8)
    text = shown(line, screen)
    assert 'Evaluating' in text
    assert 'episode 3 / 8' in text


def test_waits_and_compilation(line, screen):
    line.busy('Loading')
    assert 'Loading' in shown(line, screen)
    with signals.compiling():
        assert 'Compiling' in shown(line, screen)
    line.progress(1, 10)
    assert 'Loading' in shown(line, screen)
    line.busy('')
    assert 'Running' in shown(line, screen)


def test_what_is_printed_stays_above(line, screen, monkeypatch):
    monkeypatch.setattr(sys, 'stdout', screen)
    line.progress(1, 10)
    print('a line of the run')
    line.stop()
    assert 'a line of the run\n' in screen.getvalue()
    assert sys.stdout is screen


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0, '0:00:00'), (3661.9, '1:01:01'), (2 * 86400 + 5, '2 d 0:00:05'), (1e12, '?')],
)
def test_times(seconds, text):
    assert live.time_text(seconds) == text
    assert live.time_text(float('nan')) == '?'


def test_a_pipe_gets_plain_lines(capsys):
    assert live.find() is None
    output = logging.Terminal('score')
    output.busy('Loading')
    output.progress(1, 10)
    output.write([(1, 'episode/score', np.asarray(2.0))])
    output.busy('')
    output.close()
    assert capsys.readouterr().out == '[Step 1]  episode/score 2\n'


@pytest.mark.parametrize(('term', 'there'), [('xterm', True), ('dumb', False), ('', False)])
def test_a_terminal_has_a_line_unless_it_is_dumb(term, there, monkeypatch):
    monkeypatch.setattr(sys, 'stdout', io.StringIO())
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: True, raising=False)
    monkeypatch.setenv('TERM', term)
    assert (live.find() is not None) == there
    monkeypatch.setitem(sys.modules, 'rich.console', None)
    assert live.find() is None


def test_the_logger_passes_all_on(line, screen):
    terminal = logging.Terminal('score')
    terminal._line = line
    logger = logging.Logger(np.array(7), [terminal], multiplier=4)
    logger.add({'episode/score': 12.0})
    logger.write()
    with logger.busy('Reporting'):
        assert 'Reporting' in shown(line, screen)
    logger.progress(100, updates=1)
    text = shown(line, screen)
    assert 'step 7 / 100' in text  # env steps, as run.steps is
    assert 'score 12' in text
    logger.close()
    assert line._bar is None
