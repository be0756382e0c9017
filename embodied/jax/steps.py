"""Functions of many time steps, computed all at once or one step after the other."""

from collections.abc import Callable
from typing import Any

import jax


def over(fn: Callable, *xs: Any, stepwise: bool, remat: bool = False) -> Any:
    """fn(*xs) of arrays (T, …), for a fn that treats the steps alike.

    stepwise: one step after the other, so that what lies between inputs and outputs stays in
    the caches of a CPU; then it is always computed again in the backward pass. remat: the
    latter alone.
    """
    if not stepwise:
        return (jax.checkpoint(fn) if remat else fn)(*xs)
    fn = jax.checkpoint(fn, prevent_cse=False)  # a scan does without what prevents it
    return jax.lax.map(lambda xs: fn(*xs), xs)
