"""Another project's `embodied`, or another copy of this one, is noticed."""

import pathlib
import subprocess
import sys

import pytest

from dreamerv3 import origin

ROOT = pathlib.Path(__file__).parents[2]


def with_other(folder, code):
    """Run code where the folder comes before this project on the path."""
    start = f'import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]; '
    return subprocess.run(
        [sys.executable, '-c', start + code], capture_output=True, text=True, cwd=folder
    )


@pytest.fixture
def other(tmp_path):
    (tmp_path / 'embodied').mkdir()
    (tmp_path / 'embodied' / '__init__.py').write_text('class Env: pass\n')
    return tmp_path


def test_another_project_is_one_sentence_on_the_command_line(other):
    done = with_other(other, "from dreamerv3.main import main; main(['--help'])")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f'Error: {other / "embodied"} is another project called embodied')
    assert 'pip uninstall embodied' in line


@pytest.mark.parametrize('first', ['', 'import embodied; '])
def test_another_project_is_an_error_of_the_import_in_a_script(first, other):
    done = with_other(other, f'{first}import dreamerv3; dreamerv3.train')
    assert 'ImportError' in done.stderr
    assert 'is another project called embodied' in done.stderr


def test_another_copy_gives_a_warning(other):
    (other / 'embodied' / 'core').mkdir()
    (other / 'embodied' / 'core' / 'errors.py').touch()
    done = with_other(other, 'from dreamerv3 import origin; origin.check()')
    assert done.returncode == 0
    assert done.stderr == (
        f'Warning: embodied is that of {other}, dreamerv3 that of {ROOT}; two copies of this '
        'project may not fit each other.\n'
    )


def test_the_own_one_says_nothing(capfd):
    origin.check()
    assert capfd.readouterr() == ('', '')
