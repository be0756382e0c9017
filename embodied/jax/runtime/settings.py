"""Settings of JAX that users have in their shell or program, and what the agent makes of them.

Those that change numbers, or make errors of what its steps do, do not reach the steps: these
are traced and run with JAX's defaults. Outside of them, in the user's own code, all stays as it
was set.
"""

import contextlib
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax import experimental

# Name in jax.config -> what steps run with. A version of JAX may lack some.
STEPS: dict[str, Any] = {
    # Other numbers, or other draws for a seed.
    'jax_enable_x64': False,
    'jax_numpy_dtype_promotion': 'standard',
    'jax_default_prng_impl': 'threefry2x32',
    'jax_threefry_partitionable': True,
    'jax_default_matmul_precision': None,
    # Errors for what is meant: batches go to the devices where they are used, minus infinity
    # is a value that is not available, and a run looks for numbers that are not finite itself.
    'jax_transfer_guard_host_to_device': 'allow',
    'jax_transfer_guard_device_to_device': 'allow',
    'jax_transfer_guard_device_to_host': 'allow',
    'jax_debug_nans': False,
    'jax_debug_infs': False,
    'jax_debug_key_reuse': False,
    'jax_check_tracer_leaks': False,
}


NAMES = tuple(name for name in STEPS if hasattr(jax.config, name))
NOTHING = contextlib.nullcontext()


def ours() -> AbstractContextManager:
    """Context to trace and run steps in this thread, whatever is set elsewhere."""
    found = differing()  # for each step, so that the usual case must be fast
    return _set(tuple(found)) if found else NOTHING


def differing() -> dict[str, Any]:
    """The settings that are not as steps have them, and their values."""
    config = jax.config
    return _differing(tuple([getattr(config, name) for name in NAMES]))


@functools.cache
def _differing(values: tuple) -> dict[str, Any]:
    found = {}
    for name, value in zip(NAMES, values, strict=True):
        value = getattr(value, 'value', value)  # of an enumeration
        unset = value is None and name.startswith('jax_transfer_guard')
        if value != STEPS[name] and not unset:
            found[name] = value
    return found


@contextlib.contextmanager
def _set(names: tuple[str, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(_context(name)(STEPS[name]))
        yield


def describe() -> str:
    """One line on the settings that do not reach the steps, '' if there are none."""
    shown = ', '.join(f'{name}={value}' for name, value in differing().items())
    return shown and f'Settings of JAX that the agent leaves aside: {shown}'


def _context(name: str) -> Any:
    """What sets a value for the current thread."""
    short = name.removeprefix('jax_')
    return getattr(jax if hasattr(jax, short) else experimental, short)  # of older versions
