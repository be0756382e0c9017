"""The benchmark of the training step runs, and prints what compare reads."""

import json
import pathlib
import subprocess
import sys

import pytest

from benchmarks import compare

FOLDER = pathlib.Path(compare.__file__).parent


@pytest.mark.parametrize('flags', [[], ['--count']])
def test_figures_of_a_small_model(tmp_path, flags):
    command = [sys.executable, FOLDER / 'train.py', '--size', 'debug', '--repeats', '1', *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    figures = json.loads(line)['figures']
    assert ('train_ms' in figures) == (not flags)
    assert all(x > 0 for x in figures.values()), figures
    path = tmp_path / 'figures'
    path.write_text(line)
    table = compare.compare(str(path), str(path)).splitlines()
    assert [x.split()[3] for x in table[2:]] == ['1.000'] * (len(table) - 2)
