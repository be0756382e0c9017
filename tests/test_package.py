"""What an sdist installs works outside of the repository."""

import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
BUILD = 'import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])'


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """The folder of an install from an sdist, which was built from the files under git."""
    folder = tmp_path_factory.mktemp('package')
    source, target = folder / 'source', folder / 'target'
    for name in run('git', 'ls-files', cwd=ROOT).splitlines():
        if name.startswith(('dreamerv3/', 'embodied/')) or '/' not in name:
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, '-W', 'ignore', '-c', BUILD, str(folder), cwd=source)
    (sdist,) = folder.glob('*.tar.gz')
    with tarfile.open(sdist) as file:
        assert not [x for x in file.getnames() if '/tests/' in x]
    flags = ['--no-deps', '--no-build-isolation', '--no-index', '--target', str(target)]
    run(sys.executable, '-m', 'pip', 'install', *flags, str(sdist), cwd=folder)
    return target


def call(installed, tmp_path, *argv):
    env = {**os.environ, 'PYTHONPATH': str(installed), 'HOME': str(tmp_path)}
    return run(str(installed / 'bin' / 'dreamerv3'), *argv, cwd=tmp_path, env=env)


def test_the_command_and_its_help(installed, tmp_path):
    assert '--run.train_ratio' in call(installed, tmp_path, '--help')
    assert '--agent.opt.lr' in call(installed, tmp_path, '--help', 'all')
    assert 'size400m' in call(installed, tmp_path, '--configs')
    assert '--port' in call(installed, tmp_path, 'view', '--help')


def test_it_is_the_installed_package(installed, tmp_path):
    env = {**os.environ, 'PYTHONPATH': str(installed)}
    code = 'import dreamerv3, embodied; print(dreamerv3.__file__, embodied.__file__)'
    found = run(sys.executable, '-c', code, cwd=tmp_path, env=env).split()
    assert all(pathlib.Path(x).is_relative_to(installed) for x in found)


def test_a_run_and_its_plot(installed, tmp_path):
    flags = '--configs debug --random_agent 1 --run.steps 900 --logger.outputs jsonl --logdir x'
    assert 'Score' not in call(installed, tmp_path, *flags.split())
    call(installed, tmp_path, 'plot', 'x', '--out', 'x.png')
    assert (tmp_path / 'x.png').read_bytes().startswith(b'\x89PNG')
    assert (installed / 'dreamerv3' / 'published_scores.csv').exists()
