"""The outer files agree with each other and with the code."""

import pathlib
import re
import shlex

import ruamel.yaml
import tomllib

from dreamerv3 import config as configs
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
    assert set(re.findall(r'\w+', everything.partition('[')[2])) == extras | outputs


def test_advice_names_the_packages_of_the_extras_and_not_the_project():
    """Other projects of the same names are on the package index."""
    extras = {k: list(v) for k, v in PROJECT['optional-dependencies'].items()}
    for suite, packages in envs.PACKAGES.items():
        assert list(packages) == extras[suite], suite
    for output in ('tensorboard', 'wandb', 'mlflow'):
        text = read(f'embodied/logging/{output}.py')
        assert all(f"'{x}'" in text for x in extras[output]), output
    for path in [*ROOT.glob('dreamerv3/*.py'), *ROOT.glob('embodied/**/*.py')]:
        text = path.read_text(encoding='utf-8')
        assert not re.search(r"(dreamerv3|embodied)\[\w+\]'", text), path


def test_readme_has_the_marked_test_command():
    blocks = re.findall(r'<!-- test command -->\n```bash\n(.*?)\n```', read('README.md'), re.S)
    assert blocks == ["pip install -e '.[test]' && python -m pytest"]
    blocks = re.findall(
        r'<!-- suites command -->\n```bash\n(.*?)\n```', read('README.md'), re.S
    )
    assert blocks == ["pip install -e '.[test,all]' && python -m pytest -m suites"]


def test_root_links_to_the_defaults():
    assert (ROOT / 'configs.yaml').resolve() == ROOT / 'dreamerv3' / 'configs.yaml'


def shell_commands(text):
    """Arguments of the commands of main.py in the code blocks of a document."""
    for block in re.findall(r'```bash\n(.*?)```', text, re.S):
        for line in block.replace('\\\n', ' ').splitlines():
            _, found, arguments = line.partition('dreamerv3/main.py ')
            if found:
                yield shlex.split(arguments)


def composed_commands(text):
    services = ruamel.yaml.YAML(typ='safe').load(text)['services']
    return [shlex.split(service['command']) for service in services.values()]


def test_the_commands_for_several_hosts_are_understood_and_fit_together():
    documents = (
        [x for x in shell_commands(read('README.md')) if '_addr' in ' '.join(x)],
        composed_commands(read('examples/compose.yaml')),
    )
    for commands in documents:
        found = [configs.resolve(arguments) for arguments in commands]
        assert [x.script for x in found] == ['parallel_replay', 'parallel', 'parallel_envs']
        replay, learner, envs_ = (x.run for x in found)
        assert replay.replay_addr == learner.replay_addr
        assert replay.logger_addr == learner.logger_addr
        assert learner.actor_addr == envs_.actor_addr
        assert learner.remote_replay
        assert learner.remote_envs


def test_the_commands_of_the_readme_are_understood():
    commands = [x for x in shell_commands(read('README.md')) if 'eval_only' not in x]
    assert len(commands) > 4
    for arguments in commands:
        configs.resolve(arguments)
