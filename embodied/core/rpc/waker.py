"""How a thread wakes another that waits for sockets."""

import contextlib
import os
import threading


class Waker:
    """A pipe that becomes readable. `wake` never blocks and may come from any thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # full: it is awake; gone: see `clear`
            if not self._closed:  # or the number may be of another file by now
                os.write(self._write, b'\0')

    def clear(self) -> None:
        """Take what made it readable; to be called before the work is looked for.

        Raises OSError if somebody has closed the pipe: nothing could wake its thread.
        """
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._read, 4096)) == 4096:
                pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for file in (self._read, self._write):
                with contextlib.suppress(OSError):  # somebody has closed it already
                    os.close(file)
