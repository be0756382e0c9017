"""The output expa, whose class no public version of elements has."""

import elements
import numpy as np
import pytest

from embodied import logging
from embodied.core.errors import UserError


def make(tmp_path):
    return logging.Expa(tmp_path / 'exp' / 'run', 'project', 'me', {'seed': 1})


def test_without_the_class_there_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match=r'elements with ExpaOutput.*logger\.outputs'):
        make(tmp_path)


def test_the_class_gets_what_it_asks_for_and_all_metrics(tmp_path, monkeypatch):
    calls = []

    class ExpaOutput:
        def __init__(self, exp, run, user, more=3):
            calls.append((exp, run, user, more))

        def __call__(self, summaries):
            calls.append(summaries)

        def wait(self):
            calls.append('wait')

    monkeypatch.setattr(elements.logger, 'ExpaOutput', ExpaOutput, raising=False)
    output = make(tmp_path)
    summaries = [(1, 'x', np.asarray(1.0))]
    output.write(summaries)
    output.close()
    assert calls == [('exp', 'run', 'me', 3), summaries, 'wait']


def test_a_class_that_asks_for_more_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(elements.logger, 'ExpaOutput', lambda exp, key: None, raising=False)
    with pytest.raises(UserError, match='key'):
        make(tmp_path)
