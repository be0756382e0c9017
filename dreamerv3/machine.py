"""What the device that learns has to offer: free memory, and the speed of a CPU."""

import time
from typing import Any

import jax
import jax.numpy as jnp

from embodied.jax.runtime import settings
from embodied.replay.estimate import free_memory as free_ram

SIDE = 512  # of the matrices of the measurement, which takes some hundredths of a second


def free_memory(device: jax.Device) -> int | None:
    """Bytes that are free on a device; None if it does not say."""
    if device.platform == 'cpu':
        return free_ram()
    try:
        stats = device.memory_stats() or {}
    except Exception:  # not every backend has it
        return None
    limit = stats.get('bytes_limit')
    return limit - stats.get('bytes_in_use', 0) if limit else None


def matmul_rate(device: jax.Device, dtype: Any, repeats: int = 3) -> float:
    """Operations per second of a matrix product, the best of some tries."""
    with settings.ours():
        x = jax.device_put(jnp.ones((SIDE, SIDE), dtype), device)
        product = jax.jit(lambda a: a @ a)
        product(x).block_until_ready()
        durations = []
        for _ in range(repeats):
            start = time.perf_counter()
            product(x).block_until_ready()
            durations.append(time.perf_counter() - start)
    return 2 * SIDE**3 / min(durations)
