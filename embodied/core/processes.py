"""Processes of one run: started together, watched, and ended together.

A process runs one function that crosses by cloudpickle. It is the leader of a session of its
own, so that whatever it starts can be ended with it, and that an interrupt from the keyboard
reaches the parent alone. It ends with its parent, however that ends: orderly if it can, by
force otherwise.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import cloudpickle

from . import output
from .errors import NotFinite, UserError
from .workers import UNGUARDED, Unguarded, accepts, leave_if_imported

HOUR = 3600.0  # seconds within which restarts are counted
GRACE = 8.0  # seconds in which a process may save and end
LONGEST = 16_000  # of an error's text: a pipe that nobody reads yet takes so much


class Process:
    """One function in a process of its own, started at once.

    A function with a parameter `attempt` gets how often it was restarted within an hour.

    `restarts`: how often an hour it is started anew after it was killed. With `always` it is
    so after it ended by itself without a word too, as environments may. Errors that it says
    end it for good.
    """

    def __init__(
        self, name: str, fn: Callable[[], Any], restarts: int = 0, always: bool = False
    ):
        self.name = name
        self.restarts = restarts
        self.always = always
        self.failure: Exception | None = None
        self._target = cloudpickle.dumps(fn)
        self._restarted: list[float] = []
        self._start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> Any:
        """What `connection.wait` waits for."""
        return self._sentinel

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def restart(self) -> bool:
        """Look at how the process ended: start it anew, or return False.

        What is to be raised for its end is in `failure` then, None if it was a good one.
        """
        self._process.join()
        self._kill_group()  # of what it started
        code, error = self._process.exitcode, self._error()
        killed = code is not None and code < 0
        self.failure = error or (_ended(self.name, code) if code else None)
        now = time.monotonic()
        self._restarted = [x for x in self._restarted if now - x < HOUR]
        again = killed or (self.always and code != UNGUARDED and not error)
        if not self.failure or not again or len(self._restarted) >= self.restarts:
            return False
        self._restarted.append(now)
        count = f'{len(self._restarted)} of {self.restarts} an hour'
        print(f'{self.failure} It is restarted ({count}: run.env_restarts).', flush=True)
        self._start()
        return True

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self.running:
            self._process.terminate()

    def end(self, timeout: float = GRACE) -> None:
        """Wait for the end, and end by force what has not ended then."""
        connection.wait([self.sentinel], timeout)
        if self.running:
            print(f'The process {self.name!r} is ended by force.', flush=True)
        self._kill_group()  # it may have left children
        self._process.kill()
        self._process.join()
        code, error = self._process.exitcode, self._error()
        self.failure = error or (_ended(self.name, code) if code and code > 0 else None)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _start(self) -> None:
        leave_if_imported()
        context = multiprocessing.get_context('spawn')
        self._conn, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main,
            args=(theirs, self._target, len(self._restarted)),
            name=self.name,
        )
        self._process.start()
        self._sentinel = _sentinel(self._process)
        theirs.close()

    def _error(self) -> Exception | None:
        """What the process said of its error."""
        with contextlib.suppress(EOFError, OSError), self._conn:
            if self._conn.poll():
                kind, text = self._conn.recv()
                return _error(kind, self.name, text)
        return None


class Group:
    """Processes that are watched together, in a thread of this process.

    `failed` is set as soon as one of them ends in a way that ends the run; `check` raises
    why. `ended` is set once one has ended well, `finished` once all have.
    """

    def __init__(self) -> None:
        self.failed = threading.Event()
        self.ended = threading.Event()
        self.finished = threading.Event()
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._processes: list[Process] = []
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name='processes', daemon=True)
        self._thread.start()

    def start(
        self, name: str, fn: Callable[[], Any], restarts: int = 0, always: bool = False
    ) -> Process:
        """Start a process and watch it."""
        process = Process(name, fn, restarts, always)
        with self._lock:
            self._processes.append(process)
        self._writer.send(None)  # the watching thread looks again
        return process

    def check(self) -> None:
        """Raise the error of a process that failed."""
        if self._failure:
            raise self._failure

    def watches(self, process: Process) -> bool:
        """Whether a process has not ended for good."""
        with self._lock:
            return process in self._processes

    def end(self, processes: Sequence[Process] | None = None, seconds: float = GRACE) -> None:
        """End these processes (default: all), orderly within some time or else by force.

        An error in their end is one that `check` raises.
        """
        chosen = list(self._processes if processes is None else processes)
        with self._lock:  # from here on their ends are expected
            self._processes = [x for x in self._processes if x not in chosen]
        self._writer.send(None)
        for process in chosen:
            process.ask_to_end()
        limit = time.monotonic() + seconds
        for process in chosen:
            process.end(max(0.0, limit - time.monotonic()))
            self._failure = self._failure or process.failure

    def close(self) -> None:
        """End all processes and the watching thread."""
        self.end()
        self._closed = True
        self._writer.send(None)
        self._thread.join()
        self._writer.close()
        self._reader.close()

    def _watch(self) -> None:
        while not self._closed:
            with self._lock:
                watched: dict[Any, Process] = {x.sentinel: x for x in self._processes}
            for ready in connection.wait([self._reader, *watched]):
                if ready is self._reader:
                    self._reader.recv()
                else:
                    self._ended(watched[ready])

    def _ended(self, process: Process) -> None:
        with self._lock:
            if process not in self._processes or process.restart():
                return
            self._processes.remove(process)
            done = not self._processes
        if process.failure:
            self._failure = self._failure or process.failure
            self.failed.set()
            return
        self.ended.set()
        if done:
            self.finished.set()


def _sentinel(process: Any) -> Any:
    """What is ready once a process has ended, also while a child that it forked goes on.

    `multiprocessing` has a pipe, which such a child keeps open. Where Linux does not offer
    another, as on other systems, there is nothing else.
    """
    try:
        number = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an old kernel, or a sandbox that forbids it
        return process.sentinel
    return connection.Connection(number, writable=False)  # closes it


def _main(conn: connection.Connection, target: bytes, attempt: int) -> None:
    """Run the function in the new process; say what went wrong; exit with 0, 1 or 2."""
    os.setsid()
    output.guard()
    threading.Thread(target=_end_with_parent, name='parent', daemon=True).start()
    code = 0
    try:
        fn = cloudpickle.loads(target)
        fn(**({'attempt': attempt} if attempt and accepts(fn, 'attempt') else {}))
    except UserError as error:
        code = 2
        _say(conn, 'user', str(error))
    except NotFinite as error:
        code = 1
        _say(conn, 'float', str(error))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        code = 1
        _say(conn, 'bug', traceback.format_exc())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of libraries must not keep it


def _say(conn: connection.Connection, kind: str, text: str) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        conn.send((kind, text[-LONGEST:]))


def _error(kind: str, name: str, text: str) -> Exception:
    if kind == 'user':
        return UserError(text)
    if kind == 'float':
        return NotFinite(text)
    return RuntimeError(f'The process {name!r} failed:\n{text}')


def _ended(name: str, code: int | None) -> Exception:
    if code == UNGUARDED:
        return Unguarded()
    if code is not None and code < 0:
        return RuntimeError(f'The process {name!r} was ended by {signal.Signals(-code).name}.')
    return RuntimeError(f'The process {name!r} ended with code {code}.')


def _end_with_parent() -> None:
    """When the parent is gone, end as if asked to, and by force if that takes too long."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)
