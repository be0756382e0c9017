"""Memory Maze: mazes in which coloured balls are to be found again and again."""

import importlib.util
import sys
import types
from typing import Any

from embodied import envs
from embodied.core.base import Env
from embodied.core.errors import UserError
from embodied.envs import rendering
from embodied.envs.dm import FromDM

SIZES = ('9x9', '11x11', '13x13', '15x15')
# What the parts of a variant's name change, as in the names of the package.
VARIANTS: dict[str, dict[str, Any]] = {
    'vis': {'good_visibility': True},
    'hd': {'camera_resolution': 256},
    'top': {'top_camera': True, 'camera_resolution': 256},
    'extraobs': {'global_observables': True, 'image_only_obs': False},
    'oracle': {'show_path': True, 'global_observables': True},
    'hifreq': {'control_freq': 40},
    '6cl': {'randomize_colors': True},
}


def make(task: str, seed: int = 0) -> Env:
    """Build SIZE or SIZE-VARIANT, several of which may follow each other.

    Observation: image (uint8, 64 x 64 x 3; 256 x 256 for HD and Top); ExtraObs adds what the
    package calls global observables. Action: one of 6. Episodes take 1000 to 4000 steps, ten
    times as many with HiFreq, and end without being terminal.
    """
    size, *parts = task.replace('_', '-').lower().split('-')
    if size not in SIZES or not all(part in VARIANTS for part in parts):
        raise UserError(
            f'Unknown maze in --task memmaze_{task}; expected one of {", ".join(SIZES)}, alone '
            f'or with -{", -".join(VARIANTS)}.'
        )
    options: dict[str, Any] = {'image_only_obs': True}
    for part in parts:
        options |= VARIANTS[part]
    rendering.choose('memmaze')
    factory = getattr(_tasks(), f'memory_maze_{size}')
    draws = rendering.GlobalDraws(seed)
    with draws:
        env = FromDM(factory(seed=seed % 2**32, **options))
    return rendering.Within(env, draws)


def _tasks() -> Any:
    """The package's tasks, without its own start, which fails where the old gym is missing."""
    name = 'memory_maze'
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            envs.require(name, 'memmaze')
        assert spec is not None
        package = types.ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations or [])
        package.__spec__ = spec
        sys.modules[name] = package
    return envs.require(f'{name}.tasks', 'memmaze')
