"""Operations on files that fail for a moment, as those of network file systems do."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar('Result')

PASSING = {
    errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT,
    errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.ECONNRESET, errno.ENOTCONN, errno.EREMOTEIO if hasattr(errno, 'EREMOTEIO') else 0,
}  # fmt: skip
PAUSES = (0.1, 0.5, 2.0)  # seconds before the second try, the third, …


def persistent(fn: Callable[[], Result], what: str) -> Result:
    """Return fn(); where it raises an OSError that may pass, warn and try a few times more.

    what: the begin of the warning, such as 'Cannot write PATH'. Raises the last error, and
    those that waiting does not mend, such as that of a full disk, at once.
    """
    for pause in PAUSES:
        try:
            return fn()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            print(f'Warning: {what} ({error.strerror}); trying again', flush=True)
            time.sleep(pause)
    return fn()
