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
    return steps.over(fn, x, {'a': X[..., 0]}, **kwargs)['y']


@pytest.mark.parametrize(('stepwise', 'remat'), [(True, False), (False, True), (True, True)])
def test_values_and_gradients_do_not_depend_on_how(stepwise, remat):
    total = lambda *args, **kwargs: jnp.square(run(*args, **kwargs)).sum()
    grads = jax.grad(total, (0, 1))
    expected = run(KERNEL, X, stepwise=False), *grads(KERNEL, X, stepwise=False)
    kwargs = dict(stepwise=stepwise, remat=remat)
    found = run(KERNEL, X, **kwargs), *grads(KERNEL, X, **kwargs)
    assert found[0].shape == (4, 3, 2)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(('stepwise', 'remat'), [(True, False), (False, True), (False, False)])
def test_what_lies_between_is_kept_only_all_at_once(stepwise, remat):
    fn = lambda kernel: run(kernel, X, stepwise=stepwise, remat=remat).sum()
    _, pullback = jax.vjp(fn, KERNEL)
    kept = sum(x.size for x in jax.tree.leaves(pullback))
    inside = 4 * 3 * 2  # of tanh
    assert (kept >= X.size + inside + 12) == (not stepwise and not remat)
