"""Nested data as plain JSON and arrays, without pickle, so that reading runs no code.

Data are dicts, lists and tuples of arrays, numpy scalars, numbers, strings, bytes and None.
The JSON keeps their shape and names the arrays; the arrays go into an `.npz` file that
`numpy.load` opens too. A dict with a key that starts with '$' is one of our own marks:

    {'$array': NAME}   an array, with 'dtype' if numpy has no such type of its own (bfloat16)
    {'$scalar': NAME}  a numpy scalar                {'$bytes': NAME}    bytes
    {'$tuple': [...]}  a tuple                       {'$float': 'nan'}   nan, inf or -inf
    {'$dict': [[key, value], ...]}  a dict whose keys are not all plain strings
"""

import math
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from .errors import UserError

Arrays = dict[str, np.ndarray]
Finish = Callable[[IO[bytes]], None]

KINDS = 'biufcSUmM'  # kinds of dtype that the .npy format knows without pickle


def pack(data: Any) -> tuple[Any, Arrays]:
    """Return data as (what JSON can hold, arrays by name).

    Raises TypeError with the path of a value that cannot be stored.
    """
    arrays: Arrays = {}
    return _pack(data, (), arrays), arrays


def unpack(tree: Any, arrays: Arrays) -> Any:
    """Return the data of `pack`. Raises ValueError or KeyError if the two do not fit."""
    if isinstance(tree, list):
        return [unpack(x, arrays) for x in tree]
    if not isinstance(tree, dict):
        return tree
    mark = next((k for k in tree if k.startswith('$')), None)
    if mark is None:
        return {k: unpack(v, arrays) for k, v in tree.items()}
    return _unmark(mark, tree, arrays)


def write_npz(path: pathlib.Path, arrays: Arrays, finish: Finish) -> None:
    """Write arrays uncompressed; `finish` is called with the file before it is closed."""
    with open(path, 'wb') as file:
        with zipfile.ZipFile(file, 'w') as archive:
            for name, array in arrays.items():
                with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        finish(file)


def read_npz(path: pathlib.Path) -> Arrays:
    """Read all arrays and check each against its CRC.

    Raises ValueError, OSError or zipfile.BadZipFile for a damaged file.
    """
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):
                    raise ValueError(f'{name} is longer than its array.')
            arrays[name[: -len('.npy')]] = array
    return arrays


def _pack(value: Any, path: tuple, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        return _pack_array('$array', value, path, arrays)
    if isinstance(value, np.generic):  # before float: np.float64 is one
        return _pack_array('$scalar', np.asarray(value), path, arrays)
    if isinstance(value, bytes):
        return _pack_array('$bytes', np.frombuffer(value, np.uint8), path, arrays)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {'$float': str(value)}
    if isinstance(value, dict):
        return _pack_dict(value, path, arrays)
    if type(value) in (list, tuple):  # a named tuple would lose its type
        items = [_pack(x, (*path, i), arrays) for i, x in enumerate(value)]
        return items if isinstance(value, list) else {'$tuple': items}
    raise TypeError(f'{_join(path)} is a {type(value).__name__}, which cannot be stored.')


def _pack_dict(value: dict, path: tuple, arrays: Arrays) -> Any:
    for key in value:
        if not isinstance(key, (str, int)):
            raise TypeError(f'{_join(path)} has the key {key!r}; keys are strings or integers.')
    items = [(k, _pack(v, (*path, k), arrays)) for k, v in value.items()]
    if all(isinstance(k, str) and not k.startswith('$') for k in value):
        return dict(items)
    return {'$dict': [list(item) for item in items]}


def _pack_array(mark: str, array: np.ndarray, path: tuple, arrays: Arrays) -> dict:
    name = _join(path)
    node = {}
    if array.dtype.type.__module__ == 'ml_dtypes':
        node['dtype'] = array.dtype.name
        array = array.view(f'u{array.dtype.itemsize}')
    elif array.dtype.kind not in KINDS:
        raise TypeError(f'{name} has dtype {array.dtype}, which cannot be stored.')
    unique, count = name, 1
    while unique in arrays:  # {'a': {'b': …}, 'a/b': …}
        count += 1
        unique = f'{name}~{count}'
    arrays[unique] = array
    return {mark: unique, **node}


def _unmark(mark: str, tree: dict, arrays: Arrays) -> Any:
    value = tree[mark]
    if mark == '$tuple':
        return tuple(unpack(x, arrays) for x in value)
    if mark == '$dict':
        return {k: unpack(v, arrays) for k, v in value}
    if mark == '$float':
        return float(value)
    if mark == '$bytes':
        return arrays[value].tobytes()
    if mark not in ('$array', '$scalar'):
        raise ValueError(f'Unknown mark {mark!r}.')
    array = arrays[value]
    if 'dtype' in tree:
        array = array.view(_extended_dtype(tree['dtype']))
    return array if mark == '$array' else array[()]


def _extended_dtype(name: str) -> np.dtype:
    try:
        import ml_dtypes  # comes with JAX; not needed for anything else
    except ImportError as error:
        raise UserError(f'Arrays of type {name} need the package ml_dtypes.') from error
    kind = getattr(ml_dtypes, name, None)
    if not (isinstance(kind, type) and issubclass(kind, np.generic)):
        raise ValueError(f'Unknown dtype {name!r}.')
    return np.dtype(kind)


def _join(path: tuple) -> str:
    # Zip archives cut names at NUL and cannot hold lone surrogates.
    return re.sub(r'[^\x20-\x7e]', '_', '/'.join(str(x) for x in path)) or 'value'
