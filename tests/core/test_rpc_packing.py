"""Data as bytes: the same bytes as portal's, and no trust in those of others."""

import struct

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import msgpack
import numpy as np
import portal
import pytest
from hypothesis.extra import numpy as hnp

from embodied.core.rpc import packing

DTYPES = [
    'bool',
    'uint8',
    'int32',
    '>i4',
    'float16',
    'float32',
    'float64',
    'uint64',
    'S3',
    'U2',
]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=4))
)
leaves = arrays | st.none() | st.text(min_size=1) | st.binary(min_size=1)
trees = st.recursive(
    leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3)
)


def message(parts) -> memoryview:
    """Parts as they arrive: in memory that may be written."""
    return np.frombuffer(b''.join(parts), np.uint8).copy().data


def sent(data):
    return packing.unpack(message(packing.pack(data)))


def assert_same(a, b):
    if isinstance(a, (dict, list, tuple)):
        assert len(a) == len(b)
        for key in a if isinstance(a, dict) else range(len(a)):
            assert_same(a[key], b[key])
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)
    else:
        assert (type(a), a) == (type(b), b)


def plain(data):
    """What portal returns, with its memoryviews as bytes."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    return bytes(data) if isinstance(data, memoryview) else data


@hypothesis.given(trees)
@hypothesis.settings(max_examples=200, deadline=None)
def test_data_come_back_and_portal_understands_them(tree):
    assert_same(tree, sent(tree))
    assert_same(tree, plain(portal.unpack(message(packing.pack(tree)))))
    assert_same(tree, packing.unpack(message(portal.pack(tree))))


def test_layouts_that_portal_refuses():
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    layouts = [
        data.T,
        data[:, ::2],
        np.asfortranarray(data),
        np.broadcast_to(data, (5, 2, 3, 4)),
    ]
    big = np.arange(30_000).reshape(100, 300)
    for array in [*layouts, big.T, big[::2], np.zeros(0), np.zeros((0, 4)), np.float32(3)]:
        assert_same(np.asarray(array), sent(array))


@pytest.mark.parametrize('shape', [(), (3,), (100, 300), (0, 2)])
def test_bfloat16_comes_back_and_portal_gets_uint16(shape):
    array = np.random.default_rng(0).normal(size=shape).astype(ml_dtypes.bfloat16)
    data = {'a': np.uint16(3), 'b': array, 'c': [array.T]}
    found = sent(data)
    assert found['a'].dtype == np.uint16
    assert_same(np.asarray(array), found['b'])
    assert_same(np.asarray(array).T, found['c'][0])
    raw = portal.unpack(message(packing.pack(data)))['b']
    assert_same(np.asarray(array).view(np.uint16), raw)


def test_bfloat16_stays_uint16_where_nobody_knows_it(monkeypatch):
    monkeypatch.setattr(packing, '_bfloat16', lambda: None)
    assert sent(np.ones(3, ml_dtypes.bfloat16)).tolist() == [16256] * 3


def test_types_change_as_documented():
    found = sent({'a': (1, 2.5, True), 'b': b'', 'c': '', 'd': [], 'e': {}})
    assert [x.dtype.kind for x in found['a']] == ['i', 'f', 'b']
    assert isinstance(found['a'], list)
    assert all(x.shape == () for x in found['a'])
    assert [found[key] for key in 'bcde'] == [b'', '', [], {}]


@pytest.mark.parametrize(
    ('data', 'words'),
    [
        ({'a': [1, {'b': object()}]}, 'a/1/b: a object cannot be sent'),
        ({'a': {1, 2}}, 'a: a set cannot be sent'),
        ({'a': np.array([None])}, 'a: an array of type object'),
        ({'a': np.zeros(2, 'i4,f4')}, 'a: an array of type'),
        ({'a': np.zeros(2, 'M8[s]')}, 'a: an array of type'),
        ({'a': 2**64}, 'a: an array of type object'),
        ({'a': {3: 0}}, 'a: keys must be str'),
        (np.zeros(2, ml_dtypes.float8_e5m2), 'an array of type float8'),
    ],
)
def test_what_cannot_be_sent_is_an_error_with_its_path(data, words):
    with pytest.raises(TypeError) as info:
        packing.pack(data)
    assert str(info.value).startswith(words)


def test_nesting_has_an_end():
    deep: list = []
    for _ in range(packing.DEPTH + 1):
        deep = [deep]
    with pytest.raises(ValueError, match='nested'):
        packing.pack(deep)
    with pytest.raises(ValueError, match='nested'):
        packing.unpack(message(portal.pack(deep)))


def owner(array):
    """The memory that an array keeps alive, in bytes."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.nbytes if array.base is None else memoryview(array.base.obj).nbytes


@pytest.mark.parametrize('odd', ['x', 'xx', 'xxxx', 'xxxxxxxx'])
def test_arrays_are_aligned_writable_and_keep_little_memory(odd):
    sizes = [1, 10, 1000, 50_000, 200_000, 1_000_000]
    data = {'odd': odd, **{str(n): np.arange(n, dtype=np.float32) for n in sizes}}
    data['bytes'] = np.zeros(2_500_000, np.uint8)
    found = sent(data)
    for key in [*map(str, sizes), 'bytes']:
        array = found[key]
        assert array.flags.aligned
        assert array.flags.writeable
        assert owner(array) <= max(packing.VIEW, packing.SHARE * array.nbytes + 8)
    shared = np.frombuffer(message(packing.pack({'a': np.zeros(10_000, np.uint8)})), np.uint8)
    found = packing.unpack(shared.data)['a']
    assert np.shares_memory(found, shared)
    small = np.frombuffer(message(packing.pack({'a': np.zeros(4000, np.uint8)})), np.uint8)
    assert not np.shares_memory(packing.unpack(small.data)['a'], small)


def handmade(structure, specs, *values: bytes, sizes=None) -> memoryview:
    parts = [msgpack.packb(structure), msgpack.packb(specs), *values]
    sizes = [len(x) for x in parts] if sizes is None else sizes
    return message([struct.pack(f'<{len(sizes) + 1}Q', len(sizes), *sizes), *parts])


DAMAGED = {
    'shared memory': handmade(None, [['sharray', [4], '|u1', 'psm_1']], b'\0'),
    'objects': handmade(None, [['array', [1], '|O']], bytes(8)),
    'objects of a size': handmade(None, [['array', [1], '|O8']], bytes(8)),
    'records': handmade(None, [['array', [1], '|V8']], bytes(8)),
    'names of types': handmade(None, [['array', [1], 'float32']], bytes(4)),
    'fields': handmade(None, [['array', [1], 'f4,f4']], bytes(8)),
    'list of fields': handmade(None, [['array', [1], [['a', '|O']]]], bytes(8)),
    'no items': handmade(None, [['array', [2**40], '|S0']], b'\0'),
    'shape too large': handmade(None, [['array', [2**40], '|u1']], bytes(8)),
    'shape wraps': handmade(None, [['array', [2**32, 2**32, 2], '|u1']], b'\0'),
    'empty but huge': handmade(None, [['array', [0, 2**62], '<f8']], b'\0'),
    'negative shape': handmade(None, [['array', [-1, -8], '|u1']], bytes(8)),
    'shape of bools': handmade(None, [['array', [True], '|u1']], bytes(1)),
    'shape of floats': handmade(None, [['array', [1.0], '|u1']], bytes(1)),
    'too many axes': handmade(None, [['array', [1] * 100, '|u1']], bytes(1)),
    'empty with bytes': handmade(None, [['array', [0], '|u1']], bytes(1000)),
    'utf8': handmade(None, [['utf8']], b'\xff'),
    'no spec': handmade(None, [], b'x'),
    'spec without kind': handmade(None, [[]], b'x'),
    'spec of a number': handmade(None, [3], b'x'),
    'specs as dict': handmade(None, {'a': 3}, b'x'),
    'value too many': handmade(None, [['none'], ['none']], b'\0', b'\0'),
    'value too few': handmade([None, None], [['none']], b'\0'),
    'structure with values': handmade(3, [['none']], b'\0'),
    'keys of bytes': handmade({b'a': None}, [['none']], b'\0'),
    'keys of numbers': handmade({1: None}, [['none']], b'\0'),
    'extension': handmade(msgpack.ExtType(3, b'x'), [['none']], b'\0'),
    'bfloat16 of nothing': handmade(None, [['none'], ['bfloat16', 0]], b'\0'),
    'bfloat16 beyond': handmade(None, [['none'], ['bfloat16', 5]], b'\0'),
    'sizes wrap': handmade(None, [['none']], b'\0', sizes=[2**63, 2**63, 1]),
    'sizes beyond': handmade(None, [['none']], b'\0', sizes=[1, 7, 100]),
    'bytes left': handmade(None, [['none']], b'\0', b'left', sizes=[1, 7, 1]),
    'no parts': message([struct.pack('<Q', 0)]),
    'count beyond': message([struct.pack('<Q', 2**63), bytes(100)]),
    'count negative': message([b'\xff' * 8, bytes(100)]),
    'nothing': memoryview(b''),
    'short': memoryview(b'abc'),
}


@pytest.mark.parametrize('kind', DAMAGED)
def test_damaged_messages_are_refused(kind):
    with pytest.raises(ValueError):  # noqa: PT011 (the reasons differ)
        packing.unpack(DAMAGED[kind])


def test_bytes_other_than_0_and_1_are_true():
    found = packing.unpack(handmade(None, [['array', [2, 2], '|b1']], b'\0\1\2\xff'))
    assert found.view(np.uint8).tolist() == [[0, 1], [1, 1]]


def test_large_structures_are_refused():
    with pytest.raises(ValueError, match='structure takes over'):
        packing.unpack(handmade([[] for _ in range(packing.HEADER)], []))
    deep = b'\x91' * 100_000 + b'\xc0'
    specs = msgpack.packb([['none']])
    sizes = struct.pack('<4Q', 3, len(deep), len(specs), 1)
    with pytest.raises(ValueError, match='damaged'):
        packing.unpack(message([sizes, deep, specs, b'\0']))


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=300, deadline=None)
def test_changed_bytes_raise_nothing_but_valueerror(data):
    tree = {'a': np.arange(5), 'b': ['text', b'bytes', None], 'c': np.ones((2, 3), np.float32)}
    content = bytearray(b''.join(packing.pack(tree)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        packing.unpack(message([bytes(content)]))
    except ValueError:
        hypothesis.event('refused')
