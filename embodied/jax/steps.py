"""Functions of many time steps, computed all at once or one step after the other."""

from collections.abc import Callable
from typing import Any

import jax


def map_over_time(fn: Callable, *xs: Any, stepwise: bool, remat: bool = False) -> Any:
    """Return fn(*xs) of arrays (T, …), for a fn that treats the steps alike.

    stepwise: one step after the other, so that what lies between inputs and outputs stays in
    the caches of a CPU; of it only the products of matrices are kept for the backward pass, and
    the rest is computed again. remat: all steps at once, and all computed again.
    """
    if not stepwise:
        return (jax.checkpoint(fn) if remat else fn)(*xs)
    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    # In a scan XLA cannot merge the two computations, and nothing need keep it from it.
    fn = jax.checkpoint(fn, prevent_cse=False, policy=keep)
    return jax.lax.map(lambda xs: fn(*xs), xs)
