"""Files as memory, without the open file that Python's `mmap` keeps for each before 3.13.

A replay maps hundreds of files, and a process may often have no more than 256 open ones.
"""

import ctypes
import mmap
import os
import sys
import weakref
from typing import Any

FAILED = ctypes.c_void_p(-1).value
_libc: Any = None


def of(fileno: int, size: int) -> Any:
    """Return a writable buffer, the first `size` bytes of a file, shared with all who map it.

    It is unmapped when nothing refers to it any more; the file may be closed and removed
    before. Raises OSError.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(fileno, size, trackfd=False)
    libc = _library()
    address = libc.mmap(
        None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fileno, 0
    )
    if address == FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    # Not at the end of the process: threads may still read what it then takes back itself.
    weakref.finalize(buffer, libc.munmap, address, size).atexit = False
    return buffer


def _library() -> Any:
    """Return the C library with the signatures of the two functions."""
    global _libc
    if _libc is None:
        libc = ctypes.CDLL(None, use_errno=True)
        whole, pointer = ctypes.c_size_t, ctypes.c_void_p
        libc.mmap.argtypes = (pointer, whole, *(ctypes.c_int,) * 3, ctypes.c_int64)
        libc.mmap.restype = pointer
        libc.munmap.argtypes = (pointer, whole)
        _libc = libc
    return _libc
