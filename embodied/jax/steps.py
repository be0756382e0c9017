"""Functions of many time steps, computed all at once or one step after the other."""

from collections.abc import Callable
from typing import Any

import jax


def over(
    fn: Callable, *xs: Any, stepwise: bool, remat: bool = False, products: bool = False
) -> Any:
    """fn(*xs) of arrays (T, …), for a fn that treats the steps alike.

    stepwise: one step after the other, so that what lies between inputs and outputs stays in
    the caches of a CPU; then it is computed again in the backward pass, all of it or all but
    the products of matrices. remat: the same, all steps at once.
    """
    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if products else None
    if not stepwise:
        return (jax.checkpoint(fn, policy=keep) if remat else fn)(*xs)
    fn = jax.checkpoint(fn, prevent_cse=False, policy=keep)  # a scan does without the former
    return jax.lax.map(lambda xs: fn(*xs), xs)
