"""Compiled steps kept on disk, so that a later start neither traces nor compiles them.

JAX's own cache saves the work of XLA alone, and looks for a program only once it is traced and
lowered. Here a step is found by what it is made from: the facts that its owner states, the
source files, versions, devices, and settings of JAX and XLA. Whatever is in the way of keeping
or loading one costs a compilation, never a run.
"""

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
import threading
import uuid
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.tree_util import PyTreeDef, default_registry

MANY = 2000  # files of sources; more are a folder of something else
LIMIT = 2**30  # bytes of a folder, beyond which steps go that were not used for longest
PACKAGES = ('jax', 'jaxlib', 'equinox', 'optax', 'numpy', 'elements')
VARIABLES = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS', 'TF_XLA_FLAGS', 'NVIDIA_TF32_OVERRIDE')
OWN_SOURCES = Path(__file__).parents[1], Path(__file__).parents[2] / 'core'
HIT = '/jax/compilation_cache/cache_hits'


class StepCache:
    """A folder of compiled steps that share some facts; several processes may use it.

    facts: what the steps are made from beside their arguments and devices. sources: folders of
    Python files that are traced, beside this one. Both enter as they are now.
    """

    def __init__(self, folder: Path, facts: Any, sources: Iterable[Path] = (), limit=LIMIT):
        self.folder, self.limit = folder, limit
        self._facts = [facts, _digest([*OWN_SOURCES, *sources]), _surroundings()]

    def key(self, name: str, args: Any, devices: Sequence[jax.Device], options: Any) -> str:
        """What tells a step from all others; equal in processes that would compile the same."""
        leaves, tree = jax.tree.flatten(args)
        shapes = [(x.shape, x.dtype.name, getattr(x, 'weak_type', False)) for x in leaves]
        where = [(x.id, x.device_kind, x.process_index) for x in devices]
        return _hash([name, self._facts, str(tree), shapes, where, options])

    def load(self, name: str, key: str, devices: Sequence[jax.Device]) -> Any:
        """The step of a key, ready to be called, or None if it is not here in one piece."""
        path = self._path(name, key)
        try:
            if not _ours(path):
                return None
            head, body = path.read_bytes().split(b'\n', 1)
            head = json.loads(head)
            if head['key'] != key or head['sha256'] != hashlib.sha256(body).hexdigest():
                return None
            trees = [_read_tree(x) for x in head['trees']]
            step = serialize_executable.deserialize_and_load(
                zlib.decompress(body), *trees, devices[0].client, tuple(devices)
            )
            with contextlib.suppress(OSError):  # on a medium that is only read
                os.utime(path)  # used now
            return step
        except OSError:
            return None
        except Exception as error:  # cut, foreign, or beyond what this platform supports
            print(f'{path.name} does not load and is compiled anew: {_short(error)}')
            return None

    def save(self, name: str, key: str, step: Any) -> None:
        """Keep a step that was compiled in this process, not taken from JAX's cache."""
        path = self._path(name, key)
        aside = path.with_name(f'{path.name}.{uuid.uuid4().hex}')
        try:
            payload, *trees = serialize_executable.serialize(step)
            body = zlib.compress(payload, 1)
            head = {
                'key': key,
                'sha256': hashlib.sha256(body).hexdigest(),
                'trees': [_write_tree(x) for x in trees],
            }
            # Not for others to write to: JAX unpickles what it loads.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.write_bytes(json.dumps(head).encode() + b'\n' + body)
            aside.chmod(0o600)
            os.replace(aside, path)
            self._tidy()
        except Exception as error:  # no space, no permission, or a platform that cannot
            print(f'The compiled {name} is not kept: {_short(error)}')
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    def _path(self, name: str, key: str) -> Path:
        return self.folder / f'{name}-{key}'

    def _tidy(self) -> None:
        """Remove what was not used for longest until the rest fits."""
        stats = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process tidies as well
                if path.is_file():
                    stats.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        (_, total, _), *others = sorted(stats, reverse=True)
        for _, size, path in others:
            total += size
            if total > self.limit:
                path.unlink(missing_ok=True)


def sources(*classes: type) -> list[Path]:
    """The folders of the modules of some classes and of those that they inherit from."""
    folders = set()
    for cls in {x for each in classes for x in each.__mro__}:
        package = cls.__module__.split('.')[0]
        if package not in sys.stdlib_module_names and package not in PACKAGES:
            folders.add(Path(inspect.getfile(cls)).parent)
    return sorted(folders)


class Watch(threading.local):
    """Notes when JAX takes a program of this thread from its own cache.

    Such a program cannot be kept: on CPUs, written again, it lacks some of its functions.
    """

    hits = 0

    def __call__(self, event: str, **_: Any) -> None:
        self.hits += event == HIT


@functools.cache
def watch() -> Watch:
    """The one of this process, which JAX informs from the first call on."""
    found = Watch()
    jax.monitoring.register_event_listener(found)
    return found


def _surroundings() -> list:
    """Versions, machine, and settings that change what is traced or compiled."""
    device = jax.devices()[0]
    versions = {x: importlib.metadata.version(x) for x in PACKAGES}
    # Those of this thread: an agent makes its step cache with the settings of its steps.
    names = [k for k in jax.config.values if 'cache' not in k]
    settings = {k: repr(getattr(jax.config, k, None)) for k in names}
    variables = {x: os.environ.get(x, '') for x in VARIABLES}
    machine = [platform.python_version(), platform.machine(), _processor()]
    backend = [device.platform, device.client.platform_version, jax.device_count()]
    return [versions, settings, variables, machine, backend, jax.process_count()]


@functools.cache
def _processor() -> list[str]:
    """Model and instructions of the CPU: code for one may crash another."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return [platform.processor()]
    names = ('vendor_id', 'cpu family', 'model', 'model name', 'flags', 'Features', 'CPU part')
    return sorted({x for x in lines if x.split('\t')[0].split(':')[0].strip() in names})


def _ours(path: Path) -> bool:
    """Whether nobody else can have written a file: JAX unpickles what it loads."""
    found = path.stat()
    return os.name == 'nt' or (found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022)


def _digest(folders: Iterable[Path]) -> str:
    """Of all Python files below some folders."""
    found = hashlib.sha256()
    for folder in folders:
        files = [x for x in folder.rglob('[!.]*.py') if x.is_file()]
        if len(files) > MANY:
            raise ValueError(f'{folder} holds {len(files)} files')
        for path in sorted(files):
            found.update(f'{path.relative_to(folder)}\0'.encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _write_tree(tree: PyTreeDef) -> str:
    return base64.b64encode(tree.serialize_using_proto()).decode()


def _read_tree(text: str) -> PyTreeDef:
    return PyTreeDef.deserialize_using_proto(default_registry, base64.b64decode(text))


def _short(error: Exception) -> str:
    return f'{type(error).__name__}: {error}'.splitlines()[0][:120]
