"""Guards around elements.Space: comparison, membership, messages and samples."""

import elements
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import embodied
from embodied.core import spaces

SPACES = {
    'unit': elements.Space(np.float32, (3,), -1, 1),
    'free': elements.Space(np.float32, (2,)),
    'floor': elements.Space(np.float32, (2,), 0),
    'mixed': elements.Space(np.float32, (2,), np.float32([-1, -np.inf]), np.float32([2, 5])),
    'tenth': elements.Space(np.float32, (), 0.0, 0.1),  # 0.1 rounds up in float32
    'huge': elements.Space(np.float32, (), np.finfo(np.float32).min, np.finfo(np.float32).max),
    'class': elements.Space(np.int32, (), 0, 5),
    'classes': elements.Space(np.int32, (2,), 0, np.array([2, 7])),
    'image': elements.Space(np.uint8, (4, 4, 3)),
    'int': elements.Space(np.int32),
    'bool': elements.Space(bool, (2,)),
}


@pytest.mark.parametrize('name', SPACES)
def test_space_equals_itself_and_no_other(name: str):
    for other, space in SPACES.items():
        assert spaces.equal(SPACES[name], space) == (name == other)
    assert spaces.equal(elements.Space(str), elements.Space(str))


@pytest.mark.parametrize(
    ('name', 'low', 'high'),
    [
        ('unit', [-1] * 3, [1] * 3),
        ('class', 0, 4),
        ('classes', [0, 0], [1, 6]),
        ('image', np.zeros((4, 4, 3)), np.full((4, 4, 3), 255)),
        ('int', -(2**31), 2**31 - 1),
        ('bool', [False] * 2, [True] * 2),
    ],
)
def test_bounds_are_inclusive(name: str, low, high):
    least, greatest = spaces.bounds(SPACES[name])
    np.testing.assert_array_equal(least, low)
    np.testing.assert_array_equal(greatest, high)
    assert least.dtype == greatest.dtype == SPACES[name].dtype


@pytest.mark.parametrize(
    ('name', 'value', 'inside'),
    [
        ('unit', np.float32([-1, 0, 1]), True),
        ('unit', np.float32([-1, 0, 1.1]), False),
        ('unit', np.float32([-1, 0, np.nan]), False),
        ('unit', np.float64([-1, 0, 1]), False),
        ('unit', np.float32([-1, 0]), False),
        ('free', np.float32([1e30, -np.inf]), True),
        ('free', np.float32([0, np.inf]), False),
        ('free', np.float32([0, np.nan]), False),
        ('floor', np.float32([0, -np.inf]), False),
        ('mixed', np.float32([0, -np.inf]), True),
        ('mixed', np.float32([-np.inf, 0]), False),
        ('tenth', np.float32(0.1), True),
        ('class', np.int32(4), True),
        ('class', np.int32(5), False),
        ('class', np.int32(-1), False),
        ('class', np.int64(4), False),
        ('class', 4, False),
        ('classes', np.int32([1, 6]), True),
        ('classes', np.int32([2, 6]), False),
        ('image', np.full((4, 4, 3), 255, np.uint8), True),
        ('image', np.zeros((4, 4, 1), np.uint8), False),
        ('int', np.int32(2**31 - 1), True),
        ('bool', np.array([True, False]), True),
        ('bool', np.array([1, 0]), False),
    ],
)
def test_membership(name: str, value, inside: bool):
    assert spaces.contains(SPACES[name], value) == inside


def test_text_has_no_bounds():
    space = elements.Space(str)
    assert spaces.contains(space, 'word')
    assert not spaces.contains(space, np.int32(3))
    with pytest.raises(embodied.UserError, match=r"^'k' is .* expected text, shape \(\)"):
        spaces.check("'k'", space, 3.0)


def test_error_names_key_and_what_was_seen():
    with pytest.raises(embodied.UserError) as info:
        spaces.check('key', SPACES['unit'], np.float64([-3, 0, 7]))
    assert str(info.value) == (
        'key is outside of its space: expected dtype float32, shape (3,), from -1.0 to 1.0, '
        'got dtype float64, shape (3,), least -3.0, greatest 7.0.'
    )


@pytest.mark.parametrize('name', SPACES)
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=20, deadline=None)
def test_samples_are_inside_and_follow_the_generator(name: str, seed: int):
    space = SPACES[name]
    first, second = (spaces.sample(space, np.random.default_rng(seed)) for _ in range(2))
    spaces.check(name, space, first)
    np.testing.assert_array_equal(first, second)


def test_samples_cover_the_whole_space():
    rng = np.random.default_rng(0)
    drawn = {name: [spaces.sample(SPACES[name], rng) for _ in range(400)] for name in SPACES}
    assert {int(x) for x in drawn['class']} == {0, 1, 2, 3, 4}
    assert {tuple(x.tolist()) for x in drawn['bool']} == {
        (False, False), (False, True), (True, False), (True, True),
    }  # fmt: skip
    assert np.max(drawn['image']) == 255
    # Moments of the uniform on [-1, 1] and of the normal, within four standard errors.
    unit, free = np.array(drawn['unit']), np.array(drawn['free'])
    assert abs(unit.mean()) < 4 * np.sqrt(1 / 3 / unit.size)
    assert abs((unit**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / unit.size)
    assert abs(free.mean()) < 4 / np.sqrt(free.size)
    assert abs(free.var() - 1) < 4 * np.sqrt(2 / free.size)
