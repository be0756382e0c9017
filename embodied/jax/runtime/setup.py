"""Settings of JAX that must be made before it is first used: platform, devices, cache."""

import importlib.util
import os
from pathlib import Path

import jax

from embodied.core.errors import UserError

from . import settings

PLATFORMS = ('auto', 'cpu', 'gpu', 'cuda', 'tpu')
CUDA = ('cuda13', ('jax_cuda13_plugin', 'jax_cuda12_plugin'))
# Extra of JAX for a platform, and the modules of which it brings one.
BUILDS = {'gpu': CUDA, 'cuda': CUDA, 'tpu': ('tpu', ('libtpu',))}


def setup(config) -> None:
    """Apply section `jax` of the configuration, and find the devices.

    Raises UserError if the platform or a number of devices is asked for and missing.
    """
    if config.platform not in PLATFORMS:
        raise UserError(
            f'Unknown platform {config.platform!r}, expected one of {", ".join(PLATFORMS)} '
            '(--jax.platform)'
        )
    if config.mock_devices:
        _xla_flag(f'--xla_force_host_platform_device_count={config.mock_devices}')
    if not config.prealloc:
        os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    if config.platform != 'auto':
        jax.config.update('jax_platforms', config.platform)
    if config.jit and jax.config.jax_disable_jit:
        print('JAX_DISABLE_JIT is left aside: --jax.jit False compiles nothing', flush=True)
    jax.config.update('jax_disable_jit', not config.jit)
    if text := settings.describe():
        print(text, flush=True)
    if config.compilation_cache:
        _cache(Path(config.compilation_cache).expanduser())
    if config.coordinator_address:
        jax.distributed.initialize(config.coordinator_address)
    found = devices(config.platform)
    if config.expect_devices and len(found) != config.expect_devices:
        raise UserError(
            f'Found {len(found)} devices ({found[0].platform}), expected '
            f'{config.expect_devices} (--jax.expect_devices)'
        )
    if config.platform == 'auto' and found[0].platform == 'cpu':
        print('No accelerator found: running on the CPU (--jax.platform)')


def devices(platform: str = 'auto') -> list[jax.Device]:
    """All devices of the platform in use. Raises UserError if there are none."""
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # it asserts that it has a build for CUDA
        raise UserError(_missing(jax.config.jax_platforms or platform, error)) from error


def _missing(platform: str, error: Exception) -> str:
    """Why there are no devices of a platform, and what to do."""
    build, modules = BUILDS.get(platform, ('', ()))
    if build and not any(map(importlib.util.find_spec, modules)):
        older = ' (jax[cuda12] for drivers before 580)' if 'cuda' in build else ''
        return (
            f'--jax.platform {platform} needs the build of JAX for it: pip install -U '
            f"'jax[{build}]'{older}, or take --jax.platform cpu."
        )
    reason = f' ({str(error).splitlines()[0]})' if str(error) else ''
    return (
        f'JAX finds no device of platform {platform!r}{reason}: look at its driver, or take '
        '--jax.platform cpu.'
    )


def compute_dtype(name: str) -> str:
    """The dtype of activations that jax.compute_dtype means here.

    auto is bfloat16 on accelerators. On CPUs it is float32, which is faster there (measured on
    one without instructions for bfloat16, see docs/results.md), and exact besides.
    """
    if name != 'auto':
        return name
    return 'float32' if devices()[0].platform == 'cpu' else 'bfloat16'


def pick(indices, flag: str) -> list[jax.Device]:
    """Devices by index. Raises UserError for one that does not exist."""
    found = devices()
    missing = [i for i in indices if not 0 <= i < len(found)]
    if missing or not len(indices):
        raise UserError(
            f'Device indices {list(indices)} asked for, but JAX finds {len(found)} '
            f'({found[0].platform}); change --{flag}'
        )
    return [found[i] for i in indices]


def _xla_flag(flag: str) -> None:
    flags = os.environ.get('XLA_FLAGS', '').split()
    name = flag.split('=')[0]
    os.environ['XLA_FLAGS'] = ' '.join([f for f in flags if f.split('=')[0] != name] + [flag])


def _cache(folder: Path) -> None:
    jax.config.update('jax_compilation_cache_dir', str(folder))
    # Small programs are cached too: a start compiles a few dozen of them.
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
