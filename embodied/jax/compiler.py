"""Ahead-of-time compilation, with the options of XLA that steps of an agent run fastest with.

On CPUs XLA hands dots, reductions and convolutions to a library of kernels (YNNPACK) where its
own are faster: the gradients of convolutions take half the time with those, imagination four
fifths (docs/results.md).
"""

import functools
import os
from typing import Any

import jax

from embodied.core import signals

OWN_KERNELS = {'xla_cpu_experimental_ynn_fusion_type': ''}
FAST_START = {'xla_backend_optimization_level': 0, 'xla_llvm_disable_expensive_passes': True}


def compiled(jitted: Any, *args: Any, fast_start: bool = False) -> Any:
    """Compile a jitted function for arguments, or for their shapes and dtypes.

    fast_start trades a fast step for a fast compilation.
    """
    platform = jax.devices()[0].platform
    choice = options(platform) | (FAST_START if fast_start else {})
    with signals.compiling():
        return jitted.lower(*args).compile(choice or None)


@functools.cache
def options(platform: str) -> dict[str, Any]:
    """The options for a platform that this version of XLA knows.

    Names in XLA_FLAGS are left to the user.
    """
    if platform != 'cpu':
        return {}
    known = {}
    for name, value in OWN_KERNELS.items():
        if f'--{name}' in os.environ.get('XLA_FLAGS', ''):
            continue
        try:
            jax.jit(lambda: 0).lower().compile({name: value})
        except jax.errors.JaxRuntimeError:  # an experimental option, gone or not there yet
            continue
        known[name] = value
    return known
