"""Nested data as one message of bytes without pickle, for another Python and numpy.

A message is the length of its header (4 bytes, big-endian), the header, which is JSON of what
`serial.pack` returns with dtype and shape of each array, and the arrays' bytes in that order.
"""

import json
import math
import struct
from typing import Any

import elements
import numpy as np

from . import serial, spaces
from .base import Spaces

LENGTH = struct.Struct('>I')


def encode(data: Any) -> bytes:
    """Return a message. Raises TypeError with the path of a value that none can hold."""
    tree, arrays = serial.pack(data)
    table = [(name, x.dtype.str, x.shape) for name, x in arrays.items()]
    header = json.dumps([tree, table]).encode()
    return b''.join([LENGTH.pack(len(header)), header, *(x.tobytes() for x in arrays.values())])


def decode(message: bytes) -> Any:
    """Return the data of a message; its arrays are copies. ValueError if it is cut short."""
    (length,) = LENGTH.unpack_from(message)
    place = LENGTH.size + length
    tree, table = json.loads(message[LENGTH.size : place])
    arrays = {}
    for name, dtype, shape in table:
        count, kind = math.prod(shape), np.dtype(dtype)
        flat = np.frombuffer(message, kind, count, place) if count else np.zeros(0, kind)
        arrays[name] = flat.reshape(shape).copy()
        place += flat.nbytes
    if place != len(message):
        raise ValueError(f'A message of {len(message)} bytes should have {place}.')
    return serial.unpack(tree, arrays)


def from_spaces(found: Spaces) -> dict[str, Any]:
    """Spaces as data that a message can hold."""
    return {key: _from_space(space) for key, space in found.items()}


def to_spaces(data: dict[str, Any]) -> Spaces:
    """The spaces of `from_spaces`."""
    return {key: _to_space(value) for key, value in data.items()}


def _from_space(space: Any) -> dict[str, Any]:
    data = {'dtype': np.dtype(space.dtype).str, 'shape': list(space.shape)}
    if spaces.is_text(space) or space.dtype.kind == 'b':
        return data
    return {**data, 'low': np.asarray(space.low), 'high': np.asarray(space.high)}


def _to_space(data: dict[str, Any]) -> Any:
    dtype, shape = np.dtype(data['dtype']), tuple(data['shape'])
    if dtype.kind in 'US':
        return elements.Space(str, shape)
    if 'low' not in data:
        return elements.Space(dtype, shape)
    return elements.Space(dtype, shape, data['low'], data['high'])
