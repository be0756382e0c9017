"""Messages of plain data: what goes in comes out."""

import elements
import numpy as np
import pytest

from embodied.core import frames, spaces


def test_data_come_back():
    data = {
        'a': np.arange(6, dtype=np.int16).reshape(2, 3).T,  # not contiguous
        'b': np.float64(0.5), 'c': np.zeros((0, 4), np.float32), 'd': np.array('word'),
        'e': [1, -0.0, float('inf'), None, True, 'text'],
        'f': (b'bytes', {'g': np.bool_(True)}), 'h': np.array(3, np.uint8), 'i': {},
    }  # fmt: skip
    got = frames.decode(frames.encode(data))
    assert got.keys() == data.keys()
    for key in 'abcdh':
        np.testing.assert_array_equal(got[key], data[key])
        assert got[key].dtype == data[key].dtype
        assert got[key].shape == data[key].shape
    assert got['e'] == data['e']
    assert got['f'] == data['f']
    assert got['i'] == {}
    got['a'][0, 0] = 7  # its own memory


def test_what_cannot_be_said_is_named():
    with pytest.raises(TypeError, match='a/b is a set'):
        frames.encode({'a': {'b': {1}}})


def test_a_message_that_was_cut_is_refused():
    message = frames.encode({'a': np.zeros(5)})
    for end in (len(message) - 1, len(message) - 9):
        with pytest.raises(ValueError, match=r'buffer|bytes'):
            frames.decode(message[:end])
    with pytest.raises(ValueError, match='should have'):
        frames.decode(message + b'x')


def test_spaces_come_back():
    found = {
        'image': elements.Space(np.uint8, (4, 4, 3), 0, 256),
        'plain': elements.Space(np.float32),
        'low': elements.Space(np.float64, (2,), [-1, -np.inf], [1, np.inf]),
        'classes': elements.Space(np.int32, (2,), 0, [3, 5]),
        'flag': elements.Space(bool, (2,)),
        'text': elements.Space(str),
        'whole': elements.Space(np.int64),
    }
    got = frames.to_spaces(frames.decode(frames.encode(frames.from_spaces(found))))
    assert got.keys() == found.keys()
    for key, space in found.items():
        assert spaces.equal(got[key], space), key
    assert got['classes'].classes.tolist() == [3, 5]
