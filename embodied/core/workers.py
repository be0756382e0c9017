"""Where the environments of a driver run: in this process, or in one process each.

Both kinds have the same methods. `send` hands over an action and `receive` waits for the
observation, so that a driver can start all environments before it waits for the first.
"""

import contextlib
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

import cloudpickle

from . import forks, output, warn
from .base import Spaces, Step
from .errors import UserError
from .faults import Failed, Lost, cut
from .guest import Guest
from .waiting import Wait

UNGUARDED = 78  # exit code of a process that imports a script which would start it again
CLOSING = 60.0  # seconds that an environment may take to close
END, GONE = 'end', 'gone'  # what a process gets instead of an action
WARNING = 'warning'  # what is no answer, but to be said once for all environments
GRACE = 5.0  # seconds in which a process may end by itself
PAUSE = 0.1  # seconds between two looks at whether it has


class Unguarded(UserError):
    """The script that was started starts processes when it is imported."""

    def __init__(self) -> None:
        super().__init__(
            'A script that starts processes (run.debug False) must do so below the line `if '
            "__name__ == '__main__':`, since each of them imports it; add that line."
        )


class LocalEnv:
    """An environment in this process; its errors surface as they are.

    `timeout` is not kept: nothing can interrupt an environment that hangs in here.
    """

    def __init__(self, make: Callable, index: int, timeout: float = 0.0):
        self.index = index
        self._guest = Guest()
        self._env: Any = self._guest(make)
        self._action: Step = {}

    def spaces(self) -> tuple[Spaces, Spaces]:
        return self._guest(lambda: (self._env.obs_space, self._env.act_space))

    def send(self, action: Step) -> None:
        self._action = action

    def receive(self) -> Step:
        return self._guest(self._env.step, self._action)

    def settle(self, limit: float) -> None:
        """There is no step under way here."""

    def ask_to_end(self) -> None:
        """There is nothing to start early here."""

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            close(env, f'env {self.index}', self._guest)

    def kill(self) -> None:
        """Close an environment that failed."""
        self.close()


class ProcessEnv:
    """An environment in a process of its own, started at once.

    The process ends when this object is closed or collected and when this process ends in
    any way, since its end of the pipe closes with it. An error in it is raised by `spaces` or
    `receive`: UserError stays UserError, all else becomes Failed with the index of the
    environment and the traceback of the process. Lost says that the process ended, or that an
    answer does not come within `timeout` seconds (0: wait for ever).
    """

    def __init__(self, make: Callable, index: int, timeout: float = 0.0):
        self.index = index
        self._timeout = timeout
        self._asked = time.monotonic()
        leave_if_imported()
        context = multiprocessing.get_context('spawn')
        self._conn, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, cloudpickle.dumps(make)),
            name=f'env{index}',
            daemon=True,
        )
        self._process.start()
        theirs.close()  # or the end of the process would not be seen
        self._end = weakref.finalize(self, end, self._process, self._conn, index)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def spaces(self) -> tuple[Spaces, Spaces]:
        return self._result()

    def send(self, action: Step) -> None:
        self._asked = time.monotonic()
        with contextlib.suppress(OSError):  # gone; what it said last is still to be received
            self._conn.send(action)

    def receive(self) -> Step:
        return self._result()

    def settle(self, limit: float) -> None:
        """Wait for the step that is under way, at most for some seconds, and drop it."""
        with contextlib.suppress(EOFError, OSError, Lost):
            self._receive(time.monotonic() + limit)

    def ask_to_end(self) -> None:
        """Let the process close its environment, without waiting for it."""
        if self._end.alive:
            with contextlib.suppress(OSError):
                self._conn.send(END)

    def close(self) -> None:
        """End the process, by force if it does not end by itself within seconds."""
        self._end()

    def kill(self) -> None:
        """End the process at once."""
        if self._end.alive:
            _kill(self._process)
            self._end()

    def _result(self) -> Any:
        try:
            error, value = self._receive(self._asked + self._timeout if self._timeout else None)
        except (EOFError, OSError):
            _join(self._process, 5)
            code = self._process.exitcode
            if code == UNGUARDED:
                raise Unguarded from None
            raise Lost(f'Env {self.index}: its process ended (code {code}).') from None
        if error == 'user':
            raise UserError(value)
        if error:
            raise Failed(f'Env {self.index} failed in its process:\n{value}')
        return value

    def _receive(self, until: float | None) -> Any:
        """Return the next message, after the warnings that come before it.

        Raises Lost if it does not come until a time of the monotonic clock (None: wait).
        """
        while True:
            if until is not None and not self._conn.poll(max(0.0, until - time.monotonic())):
                raise Lost(
                    f'Env {self.index}: no answer for {self._timeout:g} s (run.env_timeout).'
                )
            kind, value = self._conn.recv()
            if kind != WARNING:
                return kind, value
            warn.once(*value)


def _serve(conn: connection.Connection, factory: bytes) -> None:
    """Run one environment for the parent until it says END or is gone."""
    os.setsid()  # a group of its own: what the environment starts can be ended with it
    # Processes of the environment end with the group, so that it may have some. The parent
    # sees this one as a daemon, and would end it if all else failed.
    multiprocessing.current_process().daemon = False
    threading.Thread(target=_end_with_parent, name='parent', daemon=True).start()
    name = multiprocessing.current_process().name.replace('env', 'env ')
    serve(conn, lambda: cloudpickle.loads(factory)(), name)


def serve(conn: Any, make: Callable, name: str) -> None:
    """Answer with the spaces of `make()`, and then to each action with its observation.

    name: of the environment, in warnings.
    """
    env = action = None
    guest = Guest()
    warn.hand_over(lambda topic, text: _warn(conn, topic, text))
    output.guard()
    with forks.undone(conn.close):  # or its end would not be seen while a child goes on
        try:
            env = guest(make)
            action = _exchange(conn, guest(lambda: (env.obs_space, env.act_space)))
            while isinstance(action, dict):
                action = _exchange(conn, guest(env.step, action))
        except Exception as error:
            _report(conn, error)
        finally:
            if env is not None:
                close(env, name, guest)
    if action == GONE or multiprocessing.active_children():  # they end with it
        sys.stdout.flush()
        os.killpg(0, signal.SIGKILL)


def _end_with_parent() -> None:
    """End this process and all that it started if the parent ends during a long step."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(GRACE)  # an environment that is not in a step sees it itself and closes
    os.killpg(0, signal.SIGKILL)


def _exchange(conn: Any, result: Any) -> Any:
    """Send a result and return the next action, END or GONE."""
    try:
        conn.send((None, result))
        return conn.recv()
    except (EOFError, ConnectionError):
        return GONE


def _warn(conn: Any, topic: str, text: str) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        conn.send((WARNING, (topic, text)))


def _report(conn: Any, error: Exception) -> None:
    """Send an error as text, since its class may not exist where it is received."""
    if isinstance(error, UserError):
        message = 'user', cut(str(error))
    else:
        message = 'bug', cut(''.join(traceback.format_exception(error)))
    with contextlib.suppress(OSError):  # the parent is gone
        conn.send(message)


def end(process: Any, conn: Any, index: int) -> None:
    """Ask, wait, and then end the process and everything that it started."""
    with contextlib.suppress(OSError):
        conn.send(END)
    conn.close()
    _join(process, GRACE)
    if process.exitcode is None:
        print(
            f'Warning: env {index} did not close within {GRACE:g} s; its process is ended by '
            'force.',
            flush=True,
        )
    _kill(process)
    process.join()


def _join(process: Any, seconds: float) -> None:
    """Wait for the end of the process itself.

    `multiprocessing` waits for a pipe, which a forked child of the process keeps open.
    """
    limit = time.monotonic() + seconds
    while process.exitcode is None and (left := limit - time.monotonic()) > 0:
        process.join(min(PAUSE, left))


def _kill(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # The group may hold more than the process; or nothing, if that ended alone.
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def leave_if_imported() -> None:
    """End this process if it was started to run something, and imports the script for that.

    Where the script lacks `if __name__ == '__main__':`, it would start processes once more.
    The process that started this one raises Unguarded.
    """
    if getattr(multiprocessing.current_process(), '_inheriting', False):
        os._exit(UNGUARDED)


class _Late(BaseException):
    """An environment did not close in time; nothing in it is to catch this."""


def close(env: Any, name: str, guest: Guest | None = None) -> None:
    """Close an environment; errors, and a close that takes too long, become a warning.

    Only the main thread can be called back from a close that hangs, and not from one that
    hangs outside of Python: the wait is said once a minute all the same.
    """
    try:
        with Wait(f'the close of {name}'), _limit(CLOSING):
            (guest or Guest())(env.close)
    except _Late:
        print(f'Warning: {name} did not close within {CLOSING:g} s; left as it is.', flush=True)
    except Exception as error:
        reason = f'{type(error).__name__}: {error}'.splitlines()[0]
        print(f'Warning: {name} did not close well: {reason:.300}', flush=True)


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise _Late in the main thread when the time is over."""

    def late(number: int, frame: Any) -> None:
        raise _Late

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def accepts(factory: Callable, name: str) -> bool:
    """Return whether a factory has a parameter of that name."""
    try:
        return name in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some builtins do not say
        return False
