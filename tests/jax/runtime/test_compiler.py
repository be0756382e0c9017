"""Options of XLA: those it knows, those it does not, and what the user sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax.runtime import compiler


@pytest.fixture(autouse=True)
def fresh():
    compiler.options.cache_clear()
    yield
    compiler.options.cache_clear()


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(compiler, 'CPU', {'xla_cpu_no_such_thing': True})
    assert compiler.options('cpu') == {}
    fn = compiler.compiled(jax.jit(lambda x: x + 1), jnp.zeros(2))
    np.testing.assert_array_equal(fn(jnp.zeros(2)), 1)


def test_what_the_user_sets_in_xla_flags_stays(monkeypatch):
    name, value = 'xla_backend_optimization_level', 1
    monkeypatch.setattr(compiler, 'CPU', {name: value})
    assert compiler.options('cpu') == {name: value}
    compiler.options.cache_clear()
    monkeypatch.setenv('XLA_FLAGS', f'--{name}=3')
    assert compiler.options('cpu') == {}


def test_other_platforms_get_none():
    assert compiler.options('gpu') == {}


@pytest.mark.parametrize('fast_start', [False, True])
def test_gradients_of_convolutions_are_those_of_the_default(fast_start):
    def loss(kernel, x):
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
        )
        return (jnp.square(y).mean(-1) * jax.nn.silu(y.sum(-1))).sum()

    keys = jax.random.split(jax.random.key(0))
    args = jax.random.normal(keys[0], (5, 5, 3, 4)), jax.random.normal(keys[1], (2, 8, 8, 3))
    grad = jax.jit(jax.grad(loss, (0, 1)))
    for ours, plain in zip(
        compiler.compiled(grad, *args, fast_start=fast_start)(*args), grad(*args), strict=True
    ):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-3)
