"""Environments in another Python interpreter: another version, another numpy, no JAX.

Pickled functions do not cross versions of Python, so a factory crosses as the name of a
function of a module with plain arguments, and everything else as messages of `frames`.
"""

import contextlib
import functools
import importlib
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import elements

from . import frames, workers
from .base import Env, Spaces, Step
from .errors import UserError

START = pathlib.Path(__file__).with_name('foreign_start.py')
SELF = pathlib.Path(__file__).parents[2]  # the folder with the packages of this project


def make(
    python: str, make_env: Callable, index: int, step: int = 0, attempt: int = 0
) -> 'ForeignEnv':
    """Return `make_env(index)` in the interpreter `python`, to be used like one in here.

    step and attempt are passed on to a factory that takes them, if they are not 0.
    """
    options = {'step': step, 'attempt': attempt}
    options = {k: v for k, v in options.items() if v and workers.accepts(make_env, k)}
    return ForeignEnv(
        ForeignWorker(functools.partial(make_env, index, **options), index, 0.0, python)
    )


class ForeignEnv(Env):
    """An environment in a process of another interpreter."""

    def __init__(self, worker: 'ForeignWorker'):
        self._worker = worker
        try:
            self._obs_space, self._act_space = worker.spaces()
        except BaseException:
            worker.close()
            raise

    @property
    def obs_space(self) -> Spaces:
        return self._obs_space

    @property
    def act_space(self) -> Spaces:
        return self._act_space

    def step(self, action: Step) -> Step:
        self._worker.send(action)
        return self._worker.receive()

    def close(self) -> None:
        self._worker.close()


class ForeignWorker(workers.ProcessEnv):
    """What ProcessEnv is, with the process in another interpreter.

    make: a function of a module, or functools.partial of one, with plain arguments (numbers,
    strings, lists, dicts, configs, such functions). Raises UserError if it is not, or if the
    interpreter does not start.
    """

    def __init__(self, make: Callable, index: int, timeout: float = 0.0, python: str = ''):
        self.index = index
        self._timeout = timeout
        self._asked = time.monotonic()
        factory = describe(make)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process: Any = _Command(python, theirs.fileno())
            conn = connection.Connection(ours.detach())
        self._conn: Any = Wire(conn)
        self._end = weakref.finalize(self, workers.end, self._process, self._conn, index)
        self.send(factory)

    def spaces(self) -> tuple[Spaces, Spaces]:
        obs_space, act_space = self._result()
        return frames.to_spaces(obs_space), frames.to_spaces(act_space)


class Wire:
    """A connection for plain data, which needs no pickle."""

    def __init__(self, conn: Any):
        self._conn = conn
        self.poll, self.close = conn.poll, conn.close

    def send(self, data: Any) -> None:
        self._conn.send_bytes(frames.encode(data))

    def recv(self) -> Any:
        return frames.decode(self._conn.recv_bytes())


class _Command:
    """A process started by command line, with what is used of `multiprocessing.Process`."""

    def __init__(self, python: str, fd: int):
        program = shutil.which(os.path.expanduser(python))
        if program is None:
            raise UserError(f'--run.env_python {python} is no program that can be run.')
        # A group of its own, so that what the environment starts can be ended with it.
        self._popen = subprocess.Popen(
            [program, str(START), str(SELF), str(fd)],
            pass_fds=[fd], stdin=subprocess.DEVNULL, env=environment(), start_new_session=True,
        )  # fmt: skip
        self.pid = self._popen.pid
        self.kill = self._popen.kill

    @property
    def exitcode(self) -> int | None:
        return self._popen.poll()

    def join(self, timeout: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the exit code says more
            self._popen.wait(timeout)


def environment() -> dict[str, str]:
    """The environment variables of the process: modules of ours by PYTHONPATH, no packages.

    The root of the project is among them where it is on our own path, as in a clone. Packages
    that are installed for this interpreter would shadow those of the other.
    """
    prefixes = tuple(os.path.realpath(x) + os.sep for x in {sys.prefix, sys.base_prefix})
    inside = lambda path: (os.path.realpath(path) + os.sep).startswith(prefixes)
    paths = [os.path.abspath(x) for x in sys.path if not inside(x) and not x.endswith('.zip')]
    paths = [x for x in paths if not x.endswith(('site-packages', 'dist-packages'))]
    kept = {k: v for k, v in os.environ.items() if k not in ('PYTHONHOME', 'VIRTUAL_ENV')}
    return {**kept, 'PYTHONPATH': os.pathsep.join(dict.fromkeys(paths))}


def serve(conn: Any) -> None:
    """Run one environment for the process at the other end of a connection."""
    threading.Thread(target=_end_with, args=(conn.fileno(),), daemon=True).start()
    wire = Wire(conn)
    make = lambda: _Plain(construct(wire.recv())())
    workers.serve(wire, make, 'an environment of run.env_python')


class _Plain:
    """An environment whose spaces are plain data."""

    def __init__(self, env: Env):
        self.obs_space = frames.from_spaces(env.obs_space)
        self.act_space = frames.from_spaces(env.act_space)
        self.step, self.close = env.step, env.close


def _end_with(fd: int) -> None:
    """End this process and all that it started if the other end closes during a long step."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    poll.poll()
    time.sleep(workers.GRACE)  # an environment that is not in a step sees it itself and closes
    os.killpg(0, signal.SIGKILL)


def describe(value: Any) -> Any:
    """A factory, or an argument of one, as plain data. Raises UserError if it cannot cross."""
    if isinstance(value, functools.partial):
        args, kwargs = [describe(x) for x in value.args], value.keywords
        return {'call': describe(value.func), 'args': args, 'kwargs': _describe_dict(kwargs)}
    if isinstance(value, elements.Config):
        return {'config': _describe_dict(dict(value.flat))}
    if isinstance(value, (types.FunctionType, type)):
        if '<' in value.__qualname__ or value.__module__ == '__main__':
            raise UserError(
                f'{value.__qualname__} of {value.__module__} cannot be used with '
                '--run.env_python; expected a function that the other interpreter can import.'
            )
        return {'module': value.__module__, 'name': value.__qualname__}
    if isinstance(value, dict):
        return {'dict': _describe_dict(value)}
    if isinstance(value, (list, tuple)):
        return [describe(x) for x in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UserError(
        f'An argument of type {type(value).__name__} cannot be sent to --run.env_python; '
        'expected numbers, strings, lists and dicts.'
    )


def construct(data: Any) -> Any:
    """What `describe` described; sequences come back as lists."""
    if isinstance(data, list):
        return [construct(x) for x in data]
    if not isinstance(data, dict):
        return data
    if 'call' in data:
        args = [construct(x) for x in data['args']]
        kwargs = {k: construct(v) for k, v in data['kwargs'].items()}
        return functools.partial(construct(data['call']), *args, **kwargs)
    if 'module' in data:
        found = importlib.import_module(data['module'])
        return functools.reduce(getattr, data['name'].split('.'), found)
    kind = 'config' if 'config' in data else 'dict'
    entries = {k: construct(v) for k, v in data[kind].items()}
    return elements.Config(entries) if kind == 'config' else entries


def _describe_dict(value: dict) -> dict[str, Any]:
    return {str(k): describe(v) for k, v in value.items()}
