"""Which package may import which, and that `embodied` needs no JAX."""

import ast
import pathlib
import subprocess
import sys
import textwrap

import pytest

import embodied

ROOT = pathlib.Path(__file__).parents[1]

# The floors of the house, from below: the ground, the first floor, and what stands on both.
GROUND = ('embodied.core', 'embodied.logging')
FIRST = ('embodied.checkpoint', 'embodied.replay')

# What each package may import of the project; packages of one floor do not see each other.
MAY_IMPORT = {
    'embodied.core': {'embodied.core'},
    'embodied.logging': {'embodied.core', 'embodied.logging'},
    'embodied.replay': {*GROUND, 'embodied.replay'},
    'embodied.checkpoint': {*GROUND, 'embodied.checkpoint'},
    'embodied.envs': {*GROUND, *FIRST, 'embodied.envs'},
    'embodied.run': {*GROUND, *FIRST, 'embodied.run'},
    'embodied.jax': {*GROUND, *FIRST, 'embodied.jax'},
}
# These run in interpreters that hold an environment and nothing else.
WITHOUT_JAX = set(MAY_IMPORT) - {'embodied.jax'}
HEAVY = {'jax', 'jaxlib', 'equinox', 'optax', 'dreamerv3', 'tests'}


def modules(package: str) -> list[pathlib.Path]:
    paths = sorted((ROOT / package.replace('.', '/')).rglob('*.py'))
    assert paths
    return paths


def imports(path: pathlib.Path) -> set[str]:
    """Return the dotted names that a file imports, also through attributes of `embodied`."""
    package = '.'.join(path.relative_to(ROOT).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split('.')[: len(package.split('.')) - node.level + 1]
            base = '.'.join([*(parts if node.level else []), *filter(None, [node.module])])
            names |= {f'{base}.{alias.name}' for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == 'embodied':
            names.add(f'embodied.{node.attr}')
    return {home(name) for name in names}


def home(name: str) -> str:
    """Resolve names that the root of `embodied` only passes on."""
    parts = name.split('.')
    if parts[0] == 'embodied' and len(parts) > 1 and parts[1] in embodied._HOMES:
        return '.'.join(['embodied', embodied._HOMES[parts[1]][0], *parts[2:]])
    return name


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + '.')


@pytest.mark.parametrize('package', MAY_IMPORT)
def test_imports_point_downwards(package: str):
    for path in modules(package):
        for name in imports(path):
            if within(name, 'embodied') and name != 'embodied':
                allowed = any(within(name, other) for other in MAY_IMPORT[package])
                assert allowed, f'{path.relative_to(ROOT)} imports {name}'
            assert not within(name, 'dreamerv3'), f'{path.relative_to(ROOT)} imports {name}'


@pytest.mark.parametrize('package', sorted(WITHOUT_JAX))
def test_env_side_keeps_to_the_syntax_of_python_3_10(package: str):
    for path in modules(package):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 10))


@pytest.mark.parametrize('package', sorted(WITHOUT_JAX))
def test_env_side_never_imports_jax(package: str):
    for path in [*modules(package), ROOT / 'embodied/__init__.py']:
        found = {name.split('.')[0] for name in imports(path)} & HEAVY
        assert not found, f'{path.relative_to(ROOT)} imports {found}'


def test_the_check_sees_every_kind_of_import(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), 'ROOT', tmp_path)
    path = tmp_path / 'embodied' / 'core' / 'x.py'
    path.parent.mkdir(parents=True)
    path.write_text(
        textwrap.dedent("""
            import embodied, jax.numpy as jnp
            from .. import replay
            from ..jax.runtime import Runtime
            from . import spaces
            from embodied import Replay
            def f():
                import optax
                return embodied.selectors.Uniform()
        """)
    )
    assert imports(path) == {
        'embodied', 'jax.numpy', 'embodied.replay', 'embodied.jax.runtime.Runtime',
        'embodied.core.spaces', 'embodied.replay.replay', 'optax', 'embodied.replay.selectors',
    }  # fmt: skip


@pytest.mark.smoke
def test_embodied_imports_without_jax():
    script = textwrap.dedent("""
        import sys
        for name in ('jax', 'jaxlib', 'equinox', 'optax'):
            sys.modules[name] = None  # importing it raises ImportError
        import embodied
        for name in embodied.__all__:
            assert getattr(embodied, name) is not None, name
        assert 'dreamerv3' not in sys.modules
        replay = embodied.replay.Replay(length=1)
        replay.add({'x': 1.0})
        print(replay.sample(1)['x'].item())
    """)
    done = subprocess.run(
        [sys.executable, '-W', 'error', '-c', script],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, '1.0\n'), done.stderr


def test_root_passes_on_all_names_and_no_others():
    assert set(embodied.__all__) <= set(dir(embodied))
    assert embodied.replay.Replay is embodied.Replay
    assert embodied.limiters is embodied.replay.limiters
    with pytest.raises(AttributeError, match='nothing'):
        _ = embodied.nothing
