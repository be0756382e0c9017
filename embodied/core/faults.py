"""Which failures of an environment cost its episode, and which end the run.

A process that was killed, ended or does not answer is the machine's fault: such environments
are made anew, so and so often an hour. An error that an environment raises may be a fault of
its code, which no restart mends. It ends the run if the environment has not finished one
episode yet, or if its failure before, within an hour, had the same traceback.
"""

import time
import traceback

HOUR = 3600.0  # seconds within which restarts count, and failures are in a row
LONGEST = 16_000  # of an error's text


class Lost(RuntimeError):
    """The process of an environment ended, or does not answer."""


class Failed(RuntimeError):
    """An environment raised an error in its process; the message holds that traceback."""


class Faults:
    """Decides about the failures of the environments of one process, by their numbers.

    restarts: how many an hour are allowed for all of them together.
    """

    def __init__(self, restarts: int):
        self._restarts = restarts
        self._restarted: list[float] = []  # times of the restarts within the last hour
        self._played: set[int] = set()  # environments that have finished an episode
        self._last: dict[int, tuple[float, tuple]] = {}  # when each failed last, and where
        self._shown: set[tuple] = set()

    def finished(self, index: int) -> None:
        """Note that an environment has finished an episode."""
        self._played.add(index)

    def add(self, index: int, error: Exception) -> None:
        """Say why an environment is restarted, or raise the error if it is not to be."""
        now = time.monotonic()
        self._restarted = [x for x in self._restarted if now - x < HOUR]
        text = '' if isinstance(error, Lost) else describe(error)
        if len(self._restarted) >= self._restarts:
            raise _shortened(index, error, text)
        if text:
            self._judge(index, error, text, now)
        self._restarted.append(now)
        count, reason = len(self._restarted), str(error).strip().rpartition('\n')[-1]
        print(
            f'Env {index} is restarted ({count} of {self._restarts} an hour, '
            f'run.env_restarts): {type(error).__name__}: {reason:.300}',
            flush=True,
        )

    def _judge(self, index: int, error: Exception, text: str, now: float) -> None:
        """Raise an error that no restart would mend; show the traceback of another once."""
        place = _place(text)
        before, last = self._last.get(index, (now, ()))
        self._last[index] = now, place
        if index not in self._played:
            reason = 'it failed before it had finished an episode'
        elif place == last and now - before < HOUR:
            reason = 'it failed twice in a row with the same traceback'
        else:
            if place not in self._shown:
                self._shown.add(place)
                print(f'Env {index} failed:\n{text.rstrip()}', flush=True)
            return
        print(f'Env {index} is not restarted: {reason}.', flush=True)
        raise _shortened(index, error, text)


def describe(error: Exception) -> str:
    """Return the traceback of the environment, cut to a length that can be read."""
    if isinstance(error, Failed):
        return cut(str(error).partition('\n')[2])
    return cut(''.join(traceback.format_exception(error)))


def cut(text: str) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f'{text[:half]} … ({len(text) - 2 * half:,} characters) … {text[-half:]}'


def _place(text: str) -> tuple:
    """Where an error arose: its frames, without messages, which may hold any numbers."""
    return tuple(x for x in text.splitlines() if x.startswith('  File "'))


def _shortened(index: int, error: Exception, text: str) -> Exception:
    """The error itself, or one with a shorter text."""
    if len(str(error)) <= 2 * LONGEST:
        return error
    error = Failed(f'Env {index} failed:\n{text}')
    error.__suppress_context__ = True
    return error
