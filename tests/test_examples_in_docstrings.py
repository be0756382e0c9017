"""Every public class and function has an example in its docstring, and the examples run.

An example sees what a reader of the module sees: the names of the module itself, `embodied`,
`elements`, numpy as `np`, and for modules of networks `jax` and `jnp`. Each runs in an
empty folder. The example of a class may stand in one of its methods.
"""

import doctest
import importlib.util
import inspect

import elements
import numpy as np
import pytest

import embodied

MODULES = [
    'embodied.core.base',
    'embodied.core.clocks',
    'embodied.core.errors',
    'embodied.core.random_agent',
    'embodied.core.spaces',
    'embodied.core.streams',
    'embodied.core.wrappers',
    'embodied.core.wrappers.values',
    'embodied.logging',
    'embodied.logging.terminal',
    'embodied.logging.logger',
    'embodied.logging.scope',
    'embodied.logging.usage',
    'embodied.replay.limiters',
    'embodied.replay.replay',
    'embodied.replay.selectors',
]
NEEDS = {'MLFlow': 'mlflow', 'WandB': 'wandb'}  # large packages that `.[test]` leaves out
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FINDER = doctest.DocTestFinder(exclude_empty=True)


def exports(module):
    """Public classes and functions of a module, by name: its __all__, and what it defines."""
    listed = [(x, getattr(module, x)) for x in getattr(module, '__all__', [])]
    defined = [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith('_') and getattr(value, '__module__', None) == module.__name__
    ]
    kinds = (inspect.isclass, inspect.isfunction)
    return {k: v for k, v in [*listed, *defined] if any(kind(v) for kind in kinds)}


def examples(name, value, module):
    """The examples in the docstring of a class or function, and in those of its methods."""
    seen = {**vars(module), 'embodied': embodied, 'elements': elements, 'np': np}
    if module.__name__.startswith(('embodied.jax', 'dreamerv3')):
        seen |= {
            k: importlib.import_module(v) for k, v in (('jax', 'jax'), ('jnp', 'jax.numpy'))
        }
    home = inspect.getmodule(value)
    return [x for x in FINDER.find(value, name, module=home, globs=seen) if x.examples]


def is_installed(name):
    """Whether the package that an example needs is there."""
    return name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None


@pytest.mark.parametrize('name', MODULES)
def test_every_export_has_an_example_that_runs(name, tmp_path, monkeypatch):
    module = importlib.import_module(name)
    found = {k: examples(k, v, module) for k, v in exports(module).items()}
    assert found, 'The module has no public class or function'
    assert [k for k, tests in found.items() if not tests] == [], 'These have no example'
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in (x for k, tests in found.items() if is_installed(k) for x in tests):
        folder = tmp_path / test.name
        folder.mkdir()
        monkeypatch.chdir(folder)
        runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, ''.join(said)
