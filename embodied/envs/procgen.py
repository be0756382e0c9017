"""Procgen: sixteen games whose levels are generated.

On envpool, since it installs beside today's numpy (procgen-mirror never does), shows the last
frame of an episode, and tells time limits from ends; the frames are the same.
"""

from typing import Any

import elements
import numpy as np

from embodied import envs, wrappers
from embodied.core.base import Env
from embodied.core.errors import UserError

GAMES = (
    'bigfish', 'bossfight', 'caveflyer', 'chaser', 'climber', 'coinrun', 'dodgeball',
    'fruitbot', 'heist', 'jumper', 'leaper', 'maze', 'miner', 'ninja', 'plunder', 'starpilot',
)  # fmt: skip
MODES = ('easy', 'hard', 'extreme', 'memory', 'exploration')


def make(
    task: str, size: tuple[int, int] = (96, 96), resize: str = 'pillow', seed: int = 0
) -> Env:
    """Build GAME, which is hard, or GAME_MODE, with the images resized from 64 x 64."""
    game, _, mode = task.partition('_')
    mode = mode or 'hard'
    if game not in GAMES or mode not in MODES:
        raise UserError(
            f'Unknown game in --task procgen_{task}; expected one of {", ".join(GAMES)}, '
            f'alone or with _{", _".join(MODES)}.'
        )
    return wrappers.ResizeImage(Procgen(game, mode, seed), size, resize)


class Procgen(Env):
    """Observation: image (uint8, 64 x 64 x 3). Action: one of 15.

    Levels are drawn without an end. Time limits (500 to 6000 steps) are not terminal.
    """

    def __init__(self, game: str, mode: str = 'hard', seed: int = 0):
        envpool = envs.require('envpool', 'procgen')
        name = f'{game.capitalize()}{mode.capitalize()}-v0'
        if name not in envpool.list_all_envs():
            raise UserError(f'Procgen has no mode {mode!r} of {game!r}.')
        options = {'num_envs': 1, 'num_threads': 1, 'seed': seed % 2**31}
        try:
            self._env = envpool.make(
                name, env_type='gymnasium', num_levels=0, start_level=0, channel_first=False,
                **options,
            )  # fmt: skip
        except ImportError as e:
            raise envs.missing_library('procgen', e) from e
        self._done = True

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {
            'image': elements.Space(np.uint8, (64, 64, 3)),
            'reward': elements.Space(np.float32),
            'is_first': elements.Space(bool),
            'is_last': elements.Space(bool),
            'is_terminal': elements.Space(bool),
        }

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return {'action': elements.Space(np.int32, (), 0, 15), 'reset': elements.Space(bool)}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._done:
            image, _ = self._env.reset()
            self._done = False
            return self._obs(image, 0.0, is_first=True)
        act = np.array([action['action']], np.int32)
        image, reward, ended, timed_out, _ = self._env.step(act)
        self._done = bool(ended[0] or timed_out[0])
        return self._obs(image, reward[0], is_terminal=bool(ended[0]))

    def close(self) -> None:
        self._env.close()

    def _obs(
        self, image: Any, reward: float, is_first: bool = False, is_terminal: bool = False
    ) -> dict[str, Any]:
        return {
            'image': image[0].copy(),
            'reward': np.float32(reward),
            'is_first': is_first,
            'is_last': self._done,
            'is_terminal': is_terminal,
        }
