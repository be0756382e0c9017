"""Camera images of MuJoCo without a display, for the suites that are built on dm_control."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import elements
import numpy as np

from embodied import envs
from embodied.core.base import Env, Step
from embodied.core.errors import UserError
from embodied.core.wrappers.base import Wrapper
from embodied.core.wrappers.values import ObsWrapper

BACKENDS = ('egl', 'osmesa')  # what draws without a display, best first
PROBE = """
import mujoco.{0}
context = mujoco.{0}.GLContext(8, 8)
context.make_current()
context.free()
"""


def choose(suite: str, needed: bool = True) -> None:
    """Set MUJOCO_GL to a backend that draws here, unless it is set; processes inherit it.

    Must come before dm_control is imported. Tried in processes of their own, because one that
    fails leaves its mark in OpenGL's libraries. Where none works, a UserError is raised if
    images are needed, and else drawing is turned off.
    """
    envs.require('mujoco', suite)
    if os.environ.get('MUJOCO_GL'):
        return
    for name in BACKENDS:
        if _draws(name):
            os.environ['MUJOCO_GL'] = name
            return
    if not needed:
        os.environ['MUJOCO_GL'] = 'disable'
        return
    raise envs.missing_library(suite, 'MuJoCo can draw neither by EGL nor by OSMesa.')


def _draws(name: str) -> bool:
    """Whether a backend can make a context in a process that is started for it."""
    environ = {**os.environ, 'MUJOCO_GL': name, 'PYOPENGL_PLATFORM': name}
    done = subprocess.run(
        [sys.executable, '-c', PROBE.format(name)], env=environ, capture_output=True
    )
    return done.returncode == 0


class Camera(ObsWrapper):
    """Adds an image of a camera, drawn once per step of this wrapper.

    physics(): the simulator, which some environments make anew at each reset. key: `image`,
    or one under `log/`.
    """

    def __init__(
        self,
        env: Env,
        physics: Callable[[], Any],
        size: tuple[int, int],
        camera: int,
        key: str = 'image',
    ):
        self._physics = physics
        self._size = tuple(size)
        self._camera = camera
        self._key = key
        space = elements.Space(np.uint8, (*self._size, 3))
        super().__init__(env, {**env.obs_space, key: space})
        count = physics().model.ncam
        if not -1 <= camera < count:
            raise UserError(f'Camera {camera} does not exist; the model has 0 to {count - 1}.')

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        image = self._physics().render(*self._size, camera_id=self._camera)
        return {**obs, self._key: image}


class Keep(ObsWrapper):
    """Leaves out the observations that are not flags, in `log/`, or wanted."""

    def __init__(self, env: Env, wanted: Callable[[str], bool]):
        flags = ('reward', 'is_first', 'is_last', 'is_terminal')
        keep = lambda key: key in flags or key.startswith('log/') or wanted(key)
        super().__init__(env, {k: v for k, v in env.obs_space.items() if keep(k)})

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        return {key: obs[key] for key in self._obs_space}


def turn_cameras_off(env: Any) -> None:
    """Leave out the images that a composer environment observes by itself, and reset it."""
    from dm_control.composer.observation import observable

    for value in env.task.observables.values():
        if isinstance(value, (observable.MJCFCamera, observable.MujocoCamera)):
            value.enabled = False
    env.reset()


class GlobalDraws:
    """While it is entered, numpy's global generator is one of its own, and then as before.

    For simulators that draw from the global one.
    """

    def __init__(self, seed: int):
        self._state = np.random.RandomState(seed % 2**32).get_state()

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *error: Any) -> None:
        self._swap()

    def _swap(self) -> None:
        outside = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._state)  # noqa: NPY002
        self._state = outside


class Within(Wrapper):
    """Steps an environment inside of a context."""

    def __init__(self, env: Env, context: Any):
        super().__init__(env)
        self._context = context

    def step(self, action: Step) -> Step:
        with self._context:
            return self.env.step(action)
