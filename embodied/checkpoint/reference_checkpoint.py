"""Checkpoints of the reference implementation, for those who move over from it.

They are pickles, which can run code when they are read. So they are read only where the user
asks for it, and even then only arrays, numbers and plain containers come out of them.
"""

import pathlib
import pickle
import re
from typing import Any

import numpy as np

from ..core.errors import UserError, reason
from . import snapshot

_CONTAINERS = 'dict list tuple set frozenset int float complex bool str bytes bytearray slice'
_ALLOWED = {
    *(('builtins', name) for name in _CONTAINERS.split()),
    ('collections', 'OrderedDict'),
    ('_codecs', 'encode'),  # how older protocols write bytes
    ('numpy', 'ndarray'),
    ('numpy', 'dtype'),
    ('numpy.core.multiarray', '_reconstruct'),
    ('numpy.core.multiarray', 'scalar'),
    ('numpy.core.numeric', '_frombuffer'),
    ('ml_dtypes', 'bfloat16'),
}


def find(path: str | pathlib.Path) -> pathlib.Path | None:
    """Return the folder with agent.pkl that `path` stands for, None if there is none.

    path: a run folder, its ckpt or ckpt/agent folder, the file `latest` in that, or a
    checkpoint itself.
    """
    if not str(path):
        return None
    path = pathlib.Path(path).expanduser()
    path = path.parent if path.name == 'latest' and path.is_file() else path
    for place in (path, path / 'ckpt', path / 'ckpt' / 'agent', path / 'agent'):
        folder = place / _latest(place)
        if (folder / 'agent.pkl').is_file() and not snapshot.manifest(folder):
            return folder
    return None


def _latest(place: pathlib.Path) -> str:
    """The name in the file `latest`; without one, or where it is damaged, the folder itself."""
    try:
        name = (place / 'latest').read_text('utf8').strip()
    except (OSError, ValueError):
        return '.'
    return name if re.fullmatch(r'[\w.-]{1,255}', name) else '.'


def read(path: pathlib.Path) -> Any:
    """Return what one file holds. Raises UserError if that is damaged or more than data."""
    try:
        with open(path, 'rb') as file:
            return _Unpickler(file).load()
    except UserError as error:
        raise UserError(f'{path} was not loaded: {error}') from error
    except Exception as error:  # a damaged pickle can raise almost any of them
        raise UserError(f'{path} cannot be read: {reason(error)}.') from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle asks for by name, if it is one of the harmless few."""
        # Names that numpy has had since version 2, and Python before version 3.
        plain = module.replace('numpy._core.', 'numpy.core.')
        plain = plain.replace('__builtin__', 'builtins')
        if (plain, name) not in _ALLOWED:
            raise UserError(f'it asks for {module}.{name}, which is no array or plain data.')
        if plain.startswith('numpy.core.'):
            core = np._core if hasattr(np, '_core') else np.core
            return getattr(getattr(core, plain.rpartition('.')[2]), name)
        return super().find_class(module, name)
