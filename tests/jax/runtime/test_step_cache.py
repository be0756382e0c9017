"""Compiled steps on disk: what is found again, what is not, and what may lie in the folder."""

import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from embodied.jax.runtime import compiler, step_cache
from embodied.jax.runtime.step_cache import StepCache

DEVICES = jax.devices()[:1]
SCALE = jnp.float32(2)


@pytest.fixture(autouse=True)
def without_the_cache_of_jax(monkeypatch):
    """Which would hold the step where compilation is slow, and then it is not kept."""
    monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR', raising=False)
    folder = jax.config.jax_compilation_cache_dir
    jax.config.update('jax_compilation_cache_dir', None)
    compilation_cache.reset_cache()
    yield
    jax.config.update('jax_compilation_cache_dir', folder)
    compilation_cache.reset_cache()


class Step:
    """A jitted step of a donated state that counts how often it is traced."""

    def __init__(self):
        self.traced = 0
        self.jitted = jax.jit(self._step, donate_argnums=0)

    def _step(self, state, scale):
        self.traced += 1
        order = jnp.sort(state['x'], 0)  # the comparison is a function of its own in XLA
        return {'x': state['x'] * scale}, (order[0], None)


def state():
    return {'x': jnp.arange(12.0).reshape(4, 3)[::-1]}


def build(keep, name='step', scale=SCALE, devices=DEVICES, **options):
    """A fresh step from a step cache, and whether it was traced for that."""
    step = Step()
    options = {'name': name, 'devices': devices, 'step_cache': keep, **options}
    return compiler.begin(step.jitted, state(), scale, **options).result(), step.traced


def check(step):
    before = state()
    after, (least, nothing) = step(before, SCALE)
    np.testing.assert_array_equal(after['x'], state()['x'] * 2)
    np.testing.assert_array_equal(least, [0, 1, 2])
    assert nothing is None
    assert before['x'].is_deleted()


def test_a_step_is_found_again_and_neither_traced_nor_compiled(tmp_path):
    step, traced = build(StepCache(tmp_path, 'facts'))
    assert traced == 1
    check(step)
    again, traced = build(StepCache(tmp_path, 'facts'))
    assert traced == 0
    check(again)
    assert len([*tmp_path.iterdir()]) == 1


def test_a_step_cache_is_opened_without_writing(tmp_path):
    StepCache(tmp_path / 'none', 'facts')
    assert not (tmp_path / 'none').exists()


CHANGES = {
    'facts': {'facts': {'units': 2}},
    'source': {'source': 'a = 2'},
    'name': {'name': 'other'},
    'shape': {'scale': jnp.ones((4, 3))},
    'dtype': {'scale': jnp.int32(2)},
    'device': {'devices': jax.devices()[1:2]},
    'devices': {'devices': jax.devices()[:2]},
    'options': {'options': {'xla_backend_optimization_level': 0}},
    'settings': {'precision': 'high'},
    'flags': {'flags': '--xla_cpu_any=1'},
    'processor': {'processor': ['flags: older']},
}


def key(
    folder, facts='units', source='a = 1', name='step', scale=SCALE, devices=DEVICES,
    options=(), precision=None, flags='', processor=(),
):  # fmt: skip
    """The key of a step with some circumstance of it changed."""
    (folder / 'model.py').write_text(source)
    with pytest.MonkeyPatch.context() as patch, jax.default_matmul_precision(precision):
        patch.setenv('XLA_FLAGS', flags)
        patch.setattr(step_cache, '_processor', lambda: [*processor])
        keep = StepCache(folder, facts, [folder])
        return keep.key(name, (state(), scale), devices, dict(options))


@pytest.mark.parametrize('change', CHANGES)
def test_a_step_of_anything_else_has_another_key(tmp_path, change):
    assert key(tmp_path) == key(tmp_path) != key(tmp_path, **CHANGES[change])


@pytest.mark.parametrize('damage', ['empty', 'cut', 'flipped', 'foreign', 'renamed'])
def test_a_damaged_file_is_ignored_and_written_again(tmp_path, damage):
    keep = StepCache(tmp_path, 'facts')
    build(keep)
    [path] = tmp_path.iterdir()
    data = path.read_bytes()
    if damage == 'renamed':
        build(keep, 'other')
        [other] = [x for x in tmp_path.iterdir() if x != path]
        other.replace(path)
    else:
        path.write_bytes({
            'empty': b'',
            'cut': data[:-9],
            'flipped': data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
            'foreign': b'{"some": "thing"}\nelse',
        }[damage])  # fmt: skip
    step, traced = build(keep)
    assert traced == 1
    check(step)
    assert build(keep)[1] == 0
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.skipif(os.name == 'nt', reason='files have no such mode on Windows')
def test_what_others_may_write_to_is_not_loaded(tmp_path):
    build(StepCache(tmp_path, 'facts'))
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o620)
    assert build(StepCache(tmp_path, 'facts'))[1] == 1


def test_a_step_on_a_medium_that_is_only_read_is_loaded(tmp_path, monkeypatch):
    build(StepCache(tmp_path, 'facts'))

    def refuse(*args):
        raise OSError(30, 'Read-only file system')

    monkeypatch.setattr(step_cache.os, 'utime', refuse)
    assert build(StepCache(tmp_path, 'facts'))[1] == 0


def test_the_newest_step_stays_however_large(tmp_path):
    keep = StepCache(tmp_path, 'facts', limit=1)
    build(keep, 'a')
    (tmp_path / 'folder').mkdir()
    build(keep, 'b')
    assert sorted(x.name[0] for x in tmp_path.iterdir()) == ['b', 'f']


def test_links_of_editors_and_hidden_files_are_no_sources(tmp_path):
    (tmp_path / 'model.py').write_text('x = 1')
    before = step_cache._digest([tmp_path])
    (tmp_path / '.#model.py').symlink_to('nowhere')
    (tmp_path / 'gone.py').symlink_to('nowhere')
    assert step_cache._digest([tmp_path]) == before
    (tmp_path / 'model.py').write_text('x = 2')
    assert step_cache._digest([tmp_path]) != before


def test_sources_are_those_of_all_classes_that_one_inherits_from():
    from dreamerv3 import agent
    from embodied.core import base
    from embodied.jax.runtime import runtime

    class Mine(agent.Agent):
        """An agent of a user, in a folder of his own."""

    found = step_cache.sources(agent.Dreamer, Mine)
    folders = [pathlib.Path(x.__file__).parent for x in (agent, base, runtime)]
    assert found == sorted([*folders, pathlib.Path(__file__).parent])


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path, capsys):
    (tmp_path / 'file').write_text('')
    step, _ = build(StepCache(tmp_path / 'file' / 'steps', 'facts'))
    check(step)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_several_write_the_same_step_at_once(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        steps = [*pool.map(lambda _: build(StepCache(tmp_path, 'facts'))[0], range(4))]
    for step in steps:
        check(step)
    assert len([*tmp_path.iterdir()]) == 1
    assert build(StepCache(tmp_path, 'facts'))[1] == 0


def test_steps_not_used_for_longest_leave_a_full_folder(tmp_path):
    keep = StepCache(tmp_path, 'facts')
    for name in 'abc':
        build(keep, name)
    files = {path.name[0]: path for path in tmp_path.iterdir()}
    for age, name in enumerate('cba'):
        os.utime(files[name], (1e9 - age, 1e9 - age))  # a is the oldest
    assert build(keep, 'a')[1] == 0  # and now the one used last
    keep.limit = 7 * max(path.stat().st_size for path in files.values()) // 2
    build(keep, 'd')
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ['a', 'c', 'd']


def test_what_jax_took_from_its_own_cache_is_not_kept(tmp_path):
    class Lowered:
        def __init__(self, lowered):
            self.lowered = lowered

        def compile(self, options):
            jax.monitoring.record_event(step_cache.HIT)
            return self.lowered.compile(options)

    class Jitted:
        def lower(self, *args):
            return Lowered(Step().jitted.lower(*args))

    keep = StepCache(tmp_path, 'facts')
    arguments = {'name': 'step', 'devices': DEVICES, 'step_cache': keep}
    check(compiler.begin(Jitted(), state(), SCALE, **arguments).result())
    assert not [*tmp_path.iterdir()]


def test_a_platform_that_loads_no_steps_compiles_them(tmp_path, monkeypatch, capsys):
    build(StepCache(tmp_path, 'facts'))

    def refuse(*args):
        raise NotImplementedError('not on this platform')

    monkeypatch.setattr(step_cache.serialize_executable, 'deserialize_and_load', refuse)
    step, traced = build(StepCache(tmp_path, 'facts'))
    assert traced == 1
    check(step)
    assert 'compiled anew' in capsys.readouterr().out


ANOTHER = """
import pathlib, sys
from tests.jax.runtime import test_step_cache
from embodied.jax.runtime.step_cache import StepCache
step, traced = test_step_cache.build(StepCache(pathlib.Path(sys.argv[1]), 'facts'))
test_step_cache.check(step)
print('traced', traced)
"""


def test_another_process_takes_what_this_one_kept(tmp_path):
    build(StepCache(tmp_path, 'facts'))
    command = [sys.executable, '-c', ANOTHER, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.split() == ['traced', '0'], run.stderr
