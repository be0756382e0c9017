"""The outer files agree with each other and with the code."""

import pathlib
import re

import tomllib

from dreamerv3 import checks
from embodied import envs

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def test_requirements_are_the_core_dependencies():
    lines = [x for x in read('requirements.txt').splitlines() if x and not x.startswith('#')]
    assert lines == PROJECT['dependencies']


def test_constraints_pin_every_direct_dependency():
    pins = dict(line.split('==') for line in read('.ci/constraints.txt').splitlines())
    pins = {re.sub(r'[-_.]+', '-', name).lower(): version for name, version in pins.items()}
    wanted = PROJECT['dependencies'] + PROJECT['optional-dependencies']['test']
    names = [re.match(r'[A-Za-z0-9._-]+', x)[0].replace('.', '-').lower() for x in wanted]
    assert [name for name in names if name not in pins] == []


def test_readme_lists_the_suites_there_are():
    section = read('README.md').split('## Suites')[1].split('\n## ')[0]
    cells = re.findall(r'^\| (`.*?) \|', section, re.M)
    listed = [suite for names in cells for suite in re.findall(r'`(\w+)`', names)]
    assert sorted(listed) == sorted(envs.SUITES)


def test_extras_are_named_after_suites_and_outputs():
    built_in = {'dummy', 'pinpad'}
    by_hand = {'dmlab', 'minecraft'}  # no package installs them
    outputs = {'tensorboard', 'wandb', 'mlflow'}
    extras = set(PROJECT['optional-dependencies']) - {'test', 'all'} - outputs
    assert extras == set(envs.SUITES) - built_in - by_hand
    (everything,) = PROJECT['optional-dependencies']['all']
    assert set(re.findall(r'\w+', everything.partition('[')[2])) == extras


def test_readme_has_the_marked_test_command():
    blocks = re.findall(r'<!-- test command -->\n```bash\n(.*?)\n```', read('README.md'), re.S)
    assert blocks == ["pip install -e '.[test]' && python -m pytest"]
    blocks = re.findall(
        r'<!-- suites command -->\n```bash\n(.*?)\n```', read('README.md'), re.S
    )
    assert blocks == ["pip install -e '.[test,all]' && python -m pytest -m suites"]


def test_root_links_to_the_defaults():
    assert (ROOT / 'configs.yaml').resolve() == ROOT / 'dreamerv3' / 'configs.yaml'


def test_every_script_is_named_once():
    assert not set(checks.SCRIPTS) & set(checks.SCRIPTS_LATER)
    assert {*checks.SCRIPTS, *checks.SCRIPTS_LATER} == {
        'train', 'train_eval', 'eval_only', 'parallel', 'parallel_env', 'parallel_envs',
        'parallel_replay',
    }  # fmt: skip
