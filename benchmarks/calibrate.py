"""Speed of this machine right now, to put other figures in proportion.

matmul: GFLOP/s of JAX products of 1024 x 1024 matrices on all cores; copy: GB/s of numpy
copies of 64 MiB; python: million dict writes per second. Medians of repetitions.
"""

import json
import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from measure import durations


def median(fn: Callable[[], object], repeats: int = 9) -> float:
    """Median duration of a call in seconds, after one that is not counted."""
    return statistics.median(durations(fn, repeats))


def matmul(dtype: str) -> float:
    """GFLOP/s of square products."""
    size = 1024
    x = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), dtype)
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / median(lambda: product(x).block_until_ready()) / 1e9


def copy() -> float:
    """GB/s of a copy in memory."""
    source = np.ones(64 * 2**20, np.uint8)
    target = np.empty_like(source)
    return source.nbytes / median(lambda: np.copyto(target, source)) / 1e9


def python() -> float:
    """Million writes into a dict per second."""
    count = 300_000

    def loop():
        table = {}
        for i in range(count):
            table[i & 1023] = i

    return count / median(loop) / 1e6


def calibrate() -> dict[str, float]:
    """All figures."""
    return {
        'matmul_f32': round(matmul('float32'), 1),
        'matmul_bf16': round(matmul('bfloat16'), 1),
        'copy': round(copy(), 1),
        'python': round(python(), 1),
    }


if __name__ == '__main__':
    print(json.dumps(calibrate()))
