"""What a start says where JAX has no devices of the platform."""

import importlib.util
import subprocess
import sys

import jax
import pytest

from embodied import UserError
from embodied.jax.runtime import setup


@pytest.fixture
def failing(monkeypatch):
    """Let JAX fail as it does for a platform, with the given error."""

    def fail(platform, error, *modules):
        def devices():
            raise error

        monkeypatch.setattr(jax, 'devices', devices)
        monkeypatch.setattr(setup.importlib.util, 'find_spec', lambda x: x in modules or None)
        monkeypatch.setattr(type(jax.config), 'jax_platforms', platform, raising=False)
        with pytest.raises(UserError) as caught:
            setup.devices()
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        assert '--jax.platform cpu' in message
        return message

    return fail


@pytest.mark.parametrize(
    ('platform', 'build'), [('cuda', 'cuda13'), ('gpu', 'cuda13'), ('tpu', 'tpu')]
)
@pytest.mark.parametrize('error', [AssertionError(), RuntimeError("'rocm' is not known")])
def test_a_missing_build_is_named(platform, build, error, failing):
    message = failing(platform, error)
    assert message.startswith(f'--jax.platform {platform} needs the build of JAX')
    assert f"pip install -U 'jax[{build}]'" in message
    assert 'rocm' not in message


def test_with_its_build_the_reason_is_shown(failing):
    message = failing('cuda', RuntimeError('No visible GPU\nand more'), 'jax_cuda12_plugin')
    assert "no device of platform 'cuda' (No visible GPU)" in message
    assert 'pip' not in message


def test_a_platform_that_nobody_builds(failing):
    assert "platform 'abacus' (unknown)" in failing('abacus', RuntimeError('unknown'))


@pytest.mark.skipif(
    any(map(importlib.util.find_spec, setup.CUDA[1])), reason='JAX has its CUDA build here'
)
def test_jax_itself_without_the_build():
    code = (
        "import jax; jax.config.update('jax_platforms', 'cuda')\n"
        'from embodied.jax.runtime import setup\n'
        'try: setup.devices()\n'
        'except setup.UserError as e: print(e)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.startswith('--jax.platform cuda needs'), done.stderr
