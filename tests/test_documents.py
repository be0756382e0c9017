"""Documents agree with the code, and what they tell a user to type works."""

import ast
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/*.md')])


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def names(path):
    """Functions, classes and their methods in a file."""
    kinds = ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
    return {x.name for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, kinds)}


def test_the_document_of_the_configuration_is_up_to_date():
    text = runpy.run_path(str(ROOT / 'docs' / 'configs.py'))['text']()
    assert read('docs/configs.md') == text, 'make docs'


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda x: x.name)
def test_links_lead_to_files(path):
    links = re.findall(r'\]\(([^)#\s]+)[^)]*\)', path.read_text(encoding='utf-8'))
    missing = [x for x in links if '://' not in x and not (path.parent / x).exists()]
    assert missing == []


def test_the_architecture_names_functions_that_exist():
    rows = re.findall(r'^\|.*\|$', read('docs/architecture.md'), re.M)[2:]
    assert len(rows) > 15
    everything = set()
    for path in [*ROOT.glob('dreamerv3/*.py'), *ROOT.glob('embodied/**/*.py')]:
        everything |= names(path)
    for row in rows:
        cell = row.rsplit('|', 2)[1]
        paths = [x for x in re.findall(r'`([^`]+)`', cell) if '/' in x]
        for name in re.findall(r'`([^`/]+)`', cell):
            assert set(name.split('.')) <= everything, row
        assert all((ROOT / x).exists() for x in paths), row


def test_paths_in_documents_exist():
    found = re.findall(
        r'`((?:embodied|dreamerv3|tests|docs|examples)/[\w/]+(?:\.\w+)?)`',
        ''.join(x.read_text(encoding='utf-8') for x in DOCUMENTS),
    )
    assert [x for x in found if 'NAME' not in x and not (ROOT / x).exists()] == []


def test_the_folders_of_the_readme_are_all_there_are():
    (table,) = re.findall(r'## Folders\n(.*?)\n## ', read('README.md'), re.S)
    listed = {x.rstrip('/') for x in re.findall(r'^\| `([^`]+)`', table, re.M)}
    tracked = subprocess.run(
        ['git', 'ls-files'], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    top = {x.split('/')[0] for x in tracked if '/' in x} - {'.ci'}
    packages = {'/'.join(x.split('/')[:2]) for x in tracked if re.match(r'embodied/\w+/', x)}
    assert listed == (top - {'embodied'}) | packages


# ---- Dockerfile


def apt_packages():
    (block,) = re.findall(r'--no-install-recommends((?:[^&]|\n)*)&&', read('Dockerfile'))
    return block.replace('\\', '').split()


def test_the_dockerfile_has_all_packages_of_the_system():
    listed = re.findall(r'`(lib\w+)`', read('README.md'))
    assert listed
    assert set(listed) <= set(apt_packages())


def test_the_packages_of_the_system_exist():
    release = pathlib.Path('/etc/os-release')
    text = release.read_text() if release.exists() else ''
    if 'bookworm' not in text or not list(
        pathlib.Path('/var/lib/apt/lists').glob('*Packages*')
    ):
        pytest.skip('needs Debian bookworm, as the Dockerfile has it, after apt-get update')
    assert 'FROM python:3.12-slim-bookworm' in read('Dockerfile')
    policy = subprocess.run(
        ['apt-cache', 'policy', *apt_packages()], capture_output=True, text=True, check=True
    ).stdout
    assert len(re.findall(r'Candidate: \d', policy)) == len(apt_packages())


@pytest.mark.skipif(
    not shutil.which('hadolint', path=f'{pathlib.Path(sys.executable).parent}:{os.defpath}'),
    reason='no hadolint for this machine',
)
def test_the_dockerfile_passes_its_linter():
    path = f'{pathlib.Path(sys.executable).parent}:{os.defpath}'
    # Debian keeps no old versions, so that pins of them would break (DL3008).
    command = [shutil.which('hadolint', path=path), '--ignore', 'DL3008', 'Dockerfile']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, '')
