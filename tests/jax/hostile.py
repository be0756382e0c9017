"""Settings of JAX that would change numbers or make errors, as a shell may have them."""

import contextlib

import jax

HOSTILE = {
    'jax_enable_x64': True,
    'jax_numpy_dtype_promotion': 'strict',
    'jax_default_prng_impl': 'rbg',
    'jax_threefry_partitionable': False,
    'jax_default_matmul_precision': 'bfloat16',
    'jax_transfer_guard_host_to_device': 'disallow',
    'jax_transfer_guard_device_to_device': 'disallow',
    'jax_transfer_guard_device_to_host': 'disallow',
    'jax_debug_nans': True,
    'jax_debug_infs': True,
    'jax_debug_key_reuse': True,
    'jax_check_tracer_leaks': True,
}


@contextlib.contextmanager
def hostile(*names):
    """Set some settings or all, as the environment variables of a shell do."""
    before = {name: getattr(jax.config, name) for name in names or HOSTILE}
    before = {name: getattr(value, 'value', value) for name, value in before.items()}
    try:
        for name in before:
            jax.config.update(name, HOSTILE[name])
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
