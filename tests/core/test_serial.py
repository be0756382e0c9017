"""Nested data to JSON and arrays and back, exactly."""

import collections
import json
import math
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest

from embodied.core import serial


def roundtrip(data, tmp_path):
    tree, arrays = serial.pack(data)
    text = json.dumps(tree, allow_nan=False)
    serial.write_npz(tmp_path / 'x.npz', arrays, finish=lambda file: None)
    return serial.unpack(json.loads(text), serial.read_npz(tmp_path / 'x.npz'))


def same(a, b):
    """Equal in type, order of keys, dtype, shape and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        bits = np.asarray(a).tobytes() == np.asarray(b).tobytes()
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits
    return a == b or (a != a and b != b)


BF16 = np.array([[1.5, -2.25], [np.inf, 0.0]], ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    'data',
    [
        None,
        0,
        12345678901234567890123,
        0.1,
        math.nan,
        -math.inf,
        True,
        'é\ud800\n',
        b'\x00\xff',
        b'',
        [],
        {},
        (),
        [1, (2.0, [None]), {'x': ()}],
        {'z': 1, 'a': 2},
        {3: 'int', 'three': 3, -1: None},
        {'$tuple': [1], '$array': 'x'},
        {'a': {'b': np.zeros(2)}, 'a/b': np.ones(3)},
        {'file': np.ones(1), 'allow_pickle': np.zeros(1), '': np.ones(2)},
        {'x.npy': np.ones(1), 'x': np.zeros(2), 'nul\0': np.ones(3), 'nul_': np.ones(4)},
        {'../up': np.ones(1), '/abs': np.ones(2)},
        np.float32(0.1),
        np.int64(-5),
        np.bool_(True),
        np.float64(math.nan),
        ml_dtypes.bfloat16(1.5),
        np.array(3, np.uint8),
        np.zeros((0, 4), np.float32),
        np.array(['ab', 'c']),
        np.array([b'ab', b'c']),
        np.array([1 + 2j]),
        np.arange(3, dtype='>i4'),
        BF16,
        {'float8': np.array([1, 2], ml_dtypes.float8_e4m3fn)},
    ],
    ids=lambda x: repr(x)[:30],
)
def test_data_come_back_the_same(data, tmp_path):
    assert same(roundtrip(data, tmp_path), data)


@pytest.mark.parametrize('array', [np.arange(12).reshape(3, 4).T, np.arange(20)[::3], BF16.T])
def test_arrays_of_any_layout(array, tmp_path):
    result = roundtrip(array, tmp_path)
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype


def test_loaded_arrays_are_writable_and_own_names(tmp_path):
    result = roundtrip({'params': {'enc/w': np.zeros(2)}}, tmp_path)
    result['params']['enc/w'] += 1
    assert result['params']['enc/w'].tolist() == [1, 1]
    with np.load(tmp_path / 'x.npz', allow_pickle=False) as file:
        assert file.files == ['params/enc/w']


class Odd:
    """Something that only pickle could store."""


Pair = collections.namedtuple('Pair', 'a b')


@pytest.mark.parametrize(
    ('data', 'message'),
    [
        ({'a': [Odd()]}, 'a/0 is a Odd'),
        ({'a': Pair(1, 2)}, 'a is a Pair'),
        ({'a': {1.5: 2}}, r'a has the key 1\.5'),
        ({'a': np.array([None])}, 'a has dtype object'),
        ({'a': np.zeros(2, [('x', 'f4')])}, 'a has dtype'),
        ({1, 2}, 'value is a set'),
    ],
)
def test_what_cannot_be_stored_is_named(data, message):
    with pytest.raises(TypeError, match=message):
        serial.pack(data)


@pytest.mark.parametrize(
    'tree',
    [{'$code': 'x'}, {'$array': 'x', 'dtype': 'finfo'}, {'$array': 'x', 'dtype': '__doc__'}],
)
def test_unknown_marks_and_types_are_refused(tree):
    with pytest.raises(ValueError, match='Unknown'):
        serial.unpack(tree, {'x': np.zeros(2, np.uint16)})


def test_object_arrays_in_a_file_are_refused(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / 'x.npz', 'w') as archive,
        archive.open('x.npy', 'w') as file,
    ):
        np.lib.format.write_array(file, np.array([Odd()], object), allow_pickle=True)
    with pytest.raises(ValueError, match='allow_pickle'):
        serial.read_npz(tmp_path / 'x.npz')


def test_an_altered_byte_is_found(tmp_path):
    serial.write_npz(tmp_path / 'x.npz', {'x': np.arange(100)}, finish=lambda file: None)
    content = bytearray((tmp_path / 'x.npz').read_bytes())
    content[400] ^= 1
    (tmp_path / 'x.npz').write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match='CRC'):
        serial.read_npz(tmp_path / 'x.npz')


def test_the_pickle_of_an_array_is_not_read(tmp_path):
    (tmp_path / 'x.npz').write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(zipfile.BadZipFile):
        serial.read_npz(tmp_path / 'x.npz')
