"""Functions of many steps: the same one step at a time as all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import steps

X = jax.random.normal(jax.random.key(0), (4, 3, 5))
KERNEL = jax.random.normal(jax.random.key(1), (5, 2))


def run(kernel, x, **kwargs):
    fn = lambda x, scale: {'y': jnp.tanh(x @ kernel) * scale['a'][..., None]}
    return steps.map_over_time(fn, x, {'a': X[..., 0]}, **kwargs)['y']


WAYS = [dict(stepwise=True), dict(stepwise=False, remat=True)]


@pytest.mark.parametrize('how', WAYS, ids=str)
def test_values_and_gradients_do_not_depend_on_how(how):
    total = lambda *args, **kwargs: jnp.square(run(*args, **kwargs)).sum()
    grads = jax.grad(total, (0, 1))
    expected = run(KERNEL, X, stepwise=False), *grads(KERNEL, X, stepwise=False)
    found = run(KERNEL, X, **how), *grads(KERNEL, X, **how)
    assert found[0].shape == (4, 3, 2)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_of_what_lies_between_products_alone_are_kept_step_by_step_and_nothing_by_remat():
    def kept(**how):
        _, pullback = jax.vjp(lambda kernel: run(kernel, X, **how).sum(), KERNEL)
        return sum(x.size for x in jax.tree.leaves(pullback))

    nothing = kept(stepwise=False, remat=True)
    assert nothing < kept(stepwise=False)
    # In place of the kernel, which is not needed to make the products again.
    assert kept(stepwise=True) == nothing + 4 * 3 * 2 - KERNEL.size
