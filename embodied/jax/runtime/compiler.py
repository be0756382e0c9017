"""Ahead-of-time compilation, with the options of XLA that steps of an agent run fastest with.

On CPUs XLA hands dots, reductions and convolutions to a library of kernels (YNNPACK) where its
own are faster: the gradients of convolutions take half the time with those, imagination four
fifths (docs/performance-notes.md).
"""

import functools
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from embodied.core import signals

from .step_cache import StepCache, watch

# LLVM's further levels take a quarter of the compilation and make no step faster. Without XLA's
# pass tree_reduction_rewriter it would take less time, but long sums would lose digits: the
# mean loss of images was 0.2 % off.
CPU = {'xla_cpu_experimental_ynn_fusion_type': '', 'xla_backend_optimization_level': 1}
# For fast compilation: the older code for fused operations, without LLVM's expensive passes.
QUICK = {'xla_cpu_use_fusion_emitters': False, 'xla_llvm_disable_expensive_passes': True}
# No optimisation at all takes half the time again, and a step up to four times as long.
SELDOM = {**QUICK, 'xla_backend_optimization_level': 0}
FAST_START = {'xla_backend_optimization_level': 0, 'xla_llvm_disable_expensive_passes': True}


def compiled(jitted: Any, *args: Any, fast_start: bool = False) -> Any:
    """Compile a jitted function for arguments, or for their shapes and dtypes.

    fast_start trades a fast step for a fast compilation.
    """
    return wait(begin(jitted, *args, fast_start=fast_start))


def begin(
    jitted: Any,
    *args: Any,
    name: str = '',
    devices: Sequence[jax.Device] = (),
    step_cache: StepCache | None = None,
    fast_start: bool = False,
    seldom: bool = False,
) -> Future:
    """Start to compile, see `compiled`; what comes is the compiled function.

    XLA works in a thread of its own, several programs at a time; tracing, which Python can only
    do for one at a time, is over on return. seldom: on CPUs, how soon it runs matters more than
    how fast. With a step cache the function is taken from there, or kept there for its name and
    the devices that it runs on.
    """
    platform = jax.devices()[0].platform
    choice = options(platform, fast_start, seldom)
    key = step_cache.key(name, args, devices, choice) if step_cache else ''
    if step_cache and (kept := step_cache.load(name, key, devices)):
        done: Future = Future()
        done.set_result(kept)
        return done
    with signals.compiling():
        lowered = jitted.lower(*args)

    def work() -> Any:
        hits = watch().hits
        with signals.compiling(awaited=False):
            result = lowered.compile(choice or None)
        if step_cache and hits == watch().hits:
            step_cache.save(name, key, result)
        return result

    return _threads().submit(work)


def wait(begun: Future) -> Any:
    """The compiled function, once it is there."""
    if begun.done():
        return begun.result()
    with signals.compiling():
        return begun.result()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix='compiler')


@functools.cache
def options(platform: str, fast_start: bool = False, seldom: bool = False) -> dict[str, Any]:
    """The options for a platform that this version of XLA knows, see `begin`.

    Names in XLA_FLAGS are left to the user.
    """
    if platform != 'cpu':
        return FAST_START if fast_start else {}
    known = {}
    for name, value in (CPU | (SELDOM if seldom else QUICK if fast_start else {})).items():
        if f'--{name}' in os.environ.get('XLA_FLAGS', ''):
            continue
        try:
            jax.jit(lambda: 0).lower().compile({name: value})
        except jax.errors.JaxRuntimeError:  # an experimental option, gone or not there yet
            continue
        known[name] = value
    return known
