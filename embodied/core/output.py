"""Standard output and error that never fail: a run goes on although nobody reads it.

A pipe may end (`| head`), a disk may fill, a terminal may go away, and an environment may close
what is not its own. What cannot be written then is lost. Text goes through a descriptor of our
own, so that one who closes number 1 does not send it into the file that gets this number next.
Characters that the encoding lacks are replaced, so that an ASCII terminal shows the rest.
"""

import codecs
import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

STREAMS = {'stdout': 1, 'stderr': 2}  # with their descriptors
PATIENCE = 1.0  # seconds in which a descriptor that does not block must take more
REPLACED = 'embodied.replaced'  # the error handler for characters that an encoding lacks
PLAIN = {
    '─': '-', '━': '-', '–': '-', '—': '-', '╸': '-', '╺': '-', '−': '-', '│': '|', '┃': '|',
    '█': '#', '•': '*', '·': '.', '…': '...', '×': 'x', '±': '+/-', '→': '->', '≤': '<=',
    '≥': '>=', '‘': "'", '’': "'", '“': '"', '”': '"', '\xa0': ' ',
}  # fmt: skip


def guard() -> None:
    """Make both streams of this process such ones, for good."""
    codecs.register_error(REPLACED, _replace)
    for name, number in STREAMS.items():
        stream = getattr(sys, name)
        if not isinstance(stream, Guard):
            setattr(sys, name, Guard(stream, number))


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Make both streams such ones, and afterwards what they were before."""
    before = {name: getattr(sys, name) for name in STREAMS}
    guard()
    guards = {name: getattr(sys, name) for name in STREAMS}
    try:
        yield
    finally:
        for name, stream in before.items():
            if guards[name] is not stream:
                guards[name].give_back()
            setattr(sys, name, stream)


class Guard(io.TextIOWrapper):
    """Text for another stream, or for nobody (None); cannot be closed."""

    def __init__(self, stream: Any, number: int):
        encoding, errors = 'utf-8', getattr(stream, 'errors', None)
        with contextlib.suppress(LookupError, TypeError):
            encoding = codecs.lookup(stream.encoding if stream else encoding).name
        errors = REPLACED if errors in (None, 'strict', 'surrogateescape') else errors
        self._sink = _Sink(stream, number, encoding)
        super().__init__(_Buffer(self._sink), encoding, errors, '\n', line_buffering=True)

    def close(self) -> None:
        """Whoever closes the streams of the process does not close them for the run."""
        self.flush()

    def detach(self) -> Any:
        """The buffer, which stays in use here."""
        self.flush()
        return self.buffer

    def give_back(self) -> None:
        """From here on write to the stream itself, for those that still hold this one."""
        self.flush()
        self._sink.release()


class _Buffer(io.BufferedWriter):
    def close(self) -> None:
        self.flush()


class _Sink(io.RawIOBase):
    """Takes bytes, and loses what it cannot hand on."""

    def __init__(self, stream: Any, number: int, encoding: str):
        super().__init__()
        self.name = getattr(stream, 'name', f'<{number}>')
        self._stream, self._number = stream, number
        self._decoder = codecs.getincrementaldecoder(encoding)('replace')
        self._fd: int | None = None
        with contextlib.suppress(Exception):
            stream.flush()
        # Others than plain ones may do more than their descriptor.
        self._plain = stream is None or type(stream) is io.TextIOWrapper
        if stream is not None and self._plain:
            with contextlib.suppress(OSError, ValueError):
                self._number = stream.fileno()
                self._fd = os.dup(self._number)
                self._stat = os.fstat(self._fd)
        if self._plain:
            with contextlib.suppress(OSError):
                self._occupy()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number if self._plain else self._stream.fileno()

    def isatty(self) -> bool:
        with contextlib.suppress(Exception):
            return os.isatty(self._number) if self._plain else self._stream.isatty()
        return False

    def write(self, data: Any) -> int:
        data = bytes(data)
        with contextlib.suppress(Exception):
            if self._fd is not None:
                self._occupy()
                self._write(data)
            elif self._stream is not None:
                self._stream.write(self._decoder.decode(data))
                self._stream.flush()
        return len(data)

    def release(self) -> None:
        """Close the descriptor."""
        if self._owned():
            os.close(self._fd)  # type: ignore[arg-type]
        self._fd = None

    def _write(self, data: bytes) -> None:
        while data and self._owned():
            try:
                data = data[os.write(self._fd, data) :]  # type: ignore[arg-type]
            except BlockingIOError:
                if not select.select([], [self._fd or 0], [], PATIENCE)[1]:
                    return
            except BrokenPipeError:
                self._discard()
                return

    def _owned(self) -> bool:
        """Whether the descriptor is still ours: somebody may have closed all there are."""
        try:
            return self._fd is not None and os.path.samestat(self._stat, os.fstat(self._fd))
        except OSError:
            return False

    def _occupy(self) -> None:
        """Take the number again if it was closed, before a file of the run gets it."""
        try:
            os.fstat(self._number)
        except OSError:
            if self._owned():
                os.dup2(self._fd, self._number)  # type: ignore[arg-type]
            else:
                _send_nowhere(self._number)

    def _discard(self) -> None:
        """Nobody will read: programs that are started later must not die of that."""
        if os.path.samestat(self._stat, os.fstat(self._number)):
            _send_nowhere(self._number)
        self.release()
        self._stream = None


def _send_nowhere(number: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    if null == number:  # which was the lowest free one
        os.set_inheritable(null, True)
        return
    os.dup2(null, number)
    os.close(null)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return ''.join(PLAIN.get(x, '?') for x in text), error.end
