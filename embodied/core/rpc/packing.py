"""Nested data as bytes in the format of `portal.pack`, read without trust.

    count, size of each part (8 bytes each), then the parts: structure, specs, leaves

Structure is msgpack with None for each leaf; a spec is ['none'], ['utf8'], ['bytes'] or
['array', shape, dtype]. The list of specs may be longer than there are leaves, which portal
ignores; ours ends with ['bfloat16', index, …] if arrays of that type are sent as uint16.

Arrays of at least VIEW bytes that are aligned and fill at least a quarter of their message
are views of it; all others are copies. So a kept array keeps at most four times its size.
"""

import functools
import math
import re
from typing import Any

import msgpack
import numpy as np

VIEW = 4096  # bytes of an array that may share the memory of its message
SHARE = 4  # such an array fills at least this part of its message
JOIN = 4096  # parts up to this many bytes are copied together, to send them at once
DEPTH = 64  # levels of dicts and lists
HEADER = 2**20  # bytes of structure and of specs
COUNT = 2**16  # parts of a message
DTYPE = re.compile(r'[<>|=](b1|[iu][1248]|f[248]|c(8|16)|[SU][1-9]\d{0,5})')
EMPTY = b'\0'  # stands for a leaf without bytes, as in portal

Parts = list  # of bytes, bytearray or memoryview


def pack(data: Any) -> Parts:
    """Return data as parts to be sent one after the other; large arrays are not copied.

    Raises TypeError or ValueError for what cannot be sent.
    """
    packer = _Packer()
    structure = msgpack.packb(packer.add(data, ()))
    if packer.bfloats:
        packer.specs.append(['bfloat16', *packer.bfloats])
    parts = [structure, msgpack.packb(packer.specs), *packer.leaves]
    sizes = np.array([len(parts), *map(len, parts)], '<u8').tobytes()
    return _join([sizes, *parts])


def unpack(message: memoryview) -> Any:
    """Return the data in a message. Raises ValueError if it is damaged or not allowed."""
    structure, specs, *leaves = _split(message)
    if max(len(structure), len(specs)) > HEADER:
        raise ValueError(f'the structure takes over {HEADER} bytes')
    specs = _loads(specs)
    if not isinstance(specs, list) or len(specs) < len(leaves):
        raise ValueError('there is not one spec per value')
    own, extras = specs[: len(leaves)], specs[len(leaves) :]
    values = [_read(x, leaf, len(message)) for x, leaf in zip(own, leaves, strict=True)]
    for extra in extras:
        _restore_bfloats(extra, values)
    values.reverse()
    result = _build(_loads(structure), values, 0)
    if values:
        raise ValueError('there are more values than the structure has')
    return result


class _Packer:
    """Collects specs and leaves in order while it walks through data."""

    def __init__(self) -> None:
        self.specs: list[list] = []
        self.leaves: Parts = []
        self.bfloats: list[int] = []

    def add(self, data: Any, path: tuple) -> Any:
        """Return the structure of data at a path, after its leaves are added."""
        if len(path) > DEPTH:
            raise ValueError(f'data are nested over {DEPTH} levels')
        if isinstance(data, dict):
            if not all(isinstance(key, str) for key in data):
                raise TypeError(f'{_where(path)}keys must be str, found {[*data]}')
            return {key: self.add(value, (*path, key)) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.add(value, (*path, i)) for i, value in enumerate(data)]
        try:
            spec, leaf = self._leaf(data)
        except TypeError as error:
            raise TypeError(f'{_where(path)}{error}') from None
        self.specs.append(spec)
        self.leaves.append(leaf)
        return None

    def _leaf(self, value: Any) -> tuple[list, Any]:
        if value is None:
            return ['none'], EMPTY
        if isinstance(value, str):
            return ['utf8'], value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return ['bytes'], bytes(value)
        if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
            raise TypeError(f'a {type(value).__name__} cannot be sent')
        array = np.asarray(value)
        name, is_bfloat = _sent_as(array.dtype)
        if is_bfloat:
            self.bfloats.append(len(self.leaves))
        spec = ['array', array.shape, name]
        if array.nbytes <= JOIN:
            return spec, array.tobytes() or EMPTY
        return spec, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _where(path: tuple) -> str:
    return f'{"/".join(map(str, path))}: ' if path else ''


@functools.lru_cache
def _sent_as(dtype: np.dtype) -> tuple[str, bool]:
    """Return the name of a type in specs, and whether it is bfloat16. Raises TypeError."""
    if dtype.name == 'bfloat16':
        return np.dtype(np.uint16).str, True
    if not DTYPE.fullmatch(dtype.str):
        raise TypeError(f'an array of type {dtype} cannot be sent')
    return dtype.str, False


def _join(parts: Parts) -> Parts:
    """Copy runs of small parts together and leave out empty ones."""
    result: Parts = []
    for part in parts:
        if len(part) > JOIN:
            result.append(part)
        elif result and isinstance(result[-1], bytearray):
            result[-1] += part
        else:
            result.append(bytearray(part))
    return result


def _split(message: memoryview) -> list[memoryview]:
    """Return the parts of a message, which must fill it."""
    count = int.from_bytes(message[:8], 'little')
    if not 2 <= count <= min(COUNT, len(message) // 8 - 1):
        raise ValueError(f'the message has no parts, or over {COUNT}')
    # Sums of hostile 64-bit sizes must not wrap around.
    sizes = [int(x) for x in np.frombuffer(message, '<u8', count, 8)]
    start = 8 + 8 * count
    if start + sum(sizes) != len(message):
        raise ValueError('the sizes do not add up to the message')
    parts = []
    for size in sizes:
        parts.append(message[start : start + size])
        start += size
    return parts


def _loads(part: memoryview) -> Any:
    try:
        return msgpack.unpackb(part, strict_map_key=True)
    except Exception as error:
        raise ValueError(f'the structure is damaged ({type(error).__name__})') from None


def _read(spec: Any, leaf: memoryview, total: int) -> Any:
    """Return one value of a message of `total` bytes."""
    kind = spec[0] if isinstance(spec, list) and spec else None
    if kind == 'array' and len(spec) == 3:
        return _array(spec[1], spec[2], leaf, total)
    if kind == 'none':
        return None
    if kind == 'utf8':
        return str(leaf, 'utf-8')
    if kind == 'bytes':
        return bytes(leaf)
    raise ValueError(f'values of kind {str(kind)[:20]!r} are not accepted')


def _array(shape: Any, dtype: Any, leaf: memoryview, total: int) -> np.ndarray:
    kind = _received_as(str(dtype))
    if not isinstance(shape, list) or not all(type(x) is int and x >= 0 for x in shape):
        raise ValueError('the shape of an array is damaged')
    size = math.prod(shape)
    if len(leaf) != size * kind.itemsize and (size or bytes(leaf[:2]) != EMPTY):
        raise ValueError('an array does not fit its shape')
    if not size:
        return np.empty(shape, kind)
    if kind.kind == 'b':  # numpy must not meet bytes other than 0 and 1
        return (np.frombuffer(leaf, np.uint8) != 0).reshape(shape)
    array = np.frombuffer(leaf, kind).reshape(shape)
    share = array.flags.aligned and array.nbytes >= max(VIEW, total // SHARE)
    return array if share else array.copy()


@functools.lru_cache
def _received_as(name: str) -> np.dtype:
    if not DTYPE.fullmatch(name):
        raise ValueError(f'arrays of type {name[:20]!r} are not accepted')
    return np.dtype(name)


def _restore_bfloats(extra: Any, values: list) -> None:
    """Give arrays that were sent as uint16 their type back, where this process knows it."""
    dtype = _bfloat16()
    if not isinstance(extra, list) or extra[:1] != ['bfloat16'] or dtype is None:
        return
    for index in extra[1:]:
        known = type(index) is int and 0 <= index < len(values)
        if not known or getattr(values[index], 'dtype', None) != np.uint16:
            raise ValueError('the list of bfloat16 arrays is damaged')
        values[index] = values[index].view(dtype)


@functools.cache
def _bfloat16() -> np.dtype | None:
    try:
        import ml_dtypes  # comes with JAX; without it the arrays stay uint16
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


def _build(structure: Any, values: list, depth: int) -> Any:
    """Return the structure with its leaves taken from the end of `values`."""
    if depth > DEPTH:
        raise ValueError(f'data are nested over {DEPTH} levels')
    if isinstance(structure, dict) and all(isinstance(key, str) for key in structure):
        return {key: _build(x, values, depth + 1) for key, x in structure.items()}
    if isinstance(structure, list):
        return [_build(x, values, depth + 1) for x in structure]
    if structure is not None or not values:
        raise ValueError('the structure does not fit the values')
    return values.pop()
