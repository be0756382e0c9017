"""Settings of JAX from elsewhere: what reaches a step, and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config as configs
from embodied.jax.runtime import settings, setup

from ..hostile import HOSTILE, hostile


def test_every_setting_has_its_opposite_here():
    assert HOSTILE.keys() == settings.STEPS.keys()
    assert settings.differing() == {}
    assert settings.describe() == ''


@pytest.mark.parametrize('name', HOSTILE)
def test_a_setting_does_not_reach_what_is_ours_and_stays_elsewhere(name):
    with hostile(name):
        assert settings.differing() == {name: HOSTILE[name]}
        with settings.ours():
            assert settings.differing() == {}
            with settings.ours():
                assert settings.differing() == {}
        assert settings.differing() == {name: HOSTILE[name]}
        assert settings.describe().endswith(f' aside: {name}={HOSTILE[name]}')


def test_numbers_are_those_of_defaults():
    def step():
        key = jax.random.wrap_key_data(np.arange(2, dtype=np.uint32))
        x = jax.random.normal(key, (8, 8)) + jnp.asarray(np.arange(8.0))[None]
        again = jax.random.uniform(key, (8, 8))  # the same key: jax_debug_key_reuse
        return jax.jit(lambda x: (x @ x, jnp.log(x - x), again + 1))(x)

    expected = step()
    with hostile(), settings.ours():
        found = step()
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype == np.float32
        np.testing.assert_array_equal(mine, theirs)


def test_the_start_says_what_is_left_aside(capsys):
    section = configs.load([], {'jax.compilation_cache': '', 'jax.platform': 'cpu'}).jax
    try:
        with hostile('jax_enable_x64', 'jax_debug_nans'):
            jax.config.update('jax_disable_jit', True)
            setup.setup(section)
        assert not jax.config.jax_disable_jit
    finally:
        jax.config.update('jax_disable_jit', False)
    assert capsys.readouterr().out.splitlines() == [
        'JAX_DISABLE_JIT is left aside: --jax.jit False compiles nothing',
        'Settings of JAX that the agent leaves aside: jax_enable_x64=True, jax_debug_nans=True',
    ]
    setup.setup(section)
    assert capsys.readouterr().out == ''
