"""What environments leave behind in a process that is to end: threads, and processes.

Python waits for them without limit, and nobody would end them.
"""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator

GRACE = 2.0  # seconds in which they may end by themselves
PAUSE = 0.1  # seconds between two looks at them


def names() -> list[str]:
    """Return what keeps this process from ending, but for its main thread."""
    found = [f'thread {x.name!r}' for x in threads()]
    return found + [f'process {x.name!r} ({x.pid})' for x in multiprocessing.active_children()]


def threads() -> list[threading.Thread]:
    """Return the threads that Python would wait for."""
    main = threading.main_thread()
    return [x for x in threading.enumerate() if x is not main and not x.daemon]


@contextlib.contextmanager
def not_waited_for() -> Iterator[None]:
    """For all that a process does: let it end then, with the same code, whatever is left.

    What is left has some seconds, is named in one line, and the processes are ended.
    """
    code: object = 1
    try:
        yield
        code = 0
    except SystemExit as error:
        code = error.code
        raise
    finally:
        number = code if isinstance(code, int) else int(code is not None)
        threading.Thread(target=_watch, args=(number,), name='leftover', daemon=True).start()


def _watch(code: int) -> None:
    """While Python waits in the main thread. Does nothing to what libraries do at exit."""
    time.sleep(GRACE)
    while not (found := names()):
        time.sleep(PAUSE)
    text = ', '.join(found)
    print(f'All is done and saved. Not waited for: {text}', flush=True)
    for how in ('terminate', 'kill'):
        children = multiprocessing.active_children()
        for child in children:
            getattr(child, how)()
        limit = time.monotonic() + GRACE
        while multiprocessing.active_children() and time.monotonic() < limit:
            time.sleep(PAUSE)
    if threads():
        os._exit(code)
