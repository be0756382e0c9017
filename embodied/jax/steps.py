"""Functions of many time steps, computed all at once or one step after the other."""

from collections.abc import Callable
from typing import Any

import jax


def over(
    fn: Callable, *xs: Any, stepwise: bool, remat: bool = False, products: bool = False
) -> Any:
    """fn(*xs) of arrays (T, …), for a fn that treats the steps alike.

    stepwise: one step after the other, so that what lies between inputs and outputs stays in
    the caches of a CPU; then it is always computed again in the backward pass. remat: the
    latter alone, all steps at once. With either, `products` keeps the products of matrices, so
    that only the rest is computed again.
    """
    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if products else None
    if not stepwise:
        return (jax.checkpoint(fn, policy=keep) if remat else fn)(*xs)
    # In a scan XLA cannot merge the two computations, and nothing need keep it from it.
    fn = jax.checkpoint(fn, prevent_cse=False, policy=keep)
    return jax.lax.map(lambda xs: fn(*xs), xs)
