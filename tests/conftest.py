"""What every test needs before JAX is imported: a CPU with two devices and a warm cache."""

import os
import pathlib
import signal

import jaxtyping
import pytest

CACHE = pathlib.Path(__file__).parent.parent / '.cache' / 'jax'
CHECKED = ['embodied.jax', 'dreamerv3.rssm', 'dreamerv3.losses', 'dreamerv3.openloop',
           'dreamerv3.encoder', 'dreamerv3.decoder', 'dreamerv3.latents',
           'dreamerv3.pixels']  # fmt: skip
DEVICES = '--xla_force_host_platform_device_count=2'


def pytest_configure() -> None:
    """Set the environment for this process and for those that tests start.

    Two virtual devices show mistakes in sharding that one hides. The compilation cache makes
    a second run of the tests much shorter.
    """
    os.environ['JAX_PLATFORMS'] = 'cpu'
    if 'xla_force_host_platform_device_count' not in os.environ.get('XLA_FLAGS', ''):
        os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {DEVICES}'.strip()
    os.environ['JAX_NUMPY_RANK_PROMOTION'] = 'raise'
    os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(CACHE))
    os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.5')
    # Under nohup, and in the background of scripts, what tests start would ignore them.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Shapes and types of the annotations are checked at every call.
    jaxtyping.install_import_hook(CHECKED, 'beartype.beartype')


@pytest.fixture(autouse=True)
def anew() -> None:
    """Let each test hear the warnings that a run says once."""
    from embodied.core import warn

    warn.begin()
