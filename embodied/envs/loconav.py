"""loconav: a walker finds the goal of a maze that it sees from its own eyes."""

import re
from typing import Any

import elements
import numpy as np

from embodied import envs, wrappers
from embodied.core.base import Env, Step
from embodied.core.errors import UserError
from embodied.core.wrappers.values import ObsWrapper
from embodied.envs import rendering
from embodied.envs.dm import FromDM
from embodied.envs.loconavmazes import MAZES

WALKERS = {'ant': 4, 'quadruped': 5}  # with the camera that is logged, which is its own
EYES = 'walker/egocentric_camera'
NAME = re.compile(rf'({"|".join(WALKERS)})_({"|".join(MAZES)})(?:_(\d+)hz)?')
COLORS = {
    '0': (0.80, 0.10, 0.10), '1': (0.10, 0.55, 0.10), '2': (0.10, 0.30, 0.80),
    '3': (0.90, 0.75, 0.10), '4': (0.55, 0.20, 0.70), '5': (0.95, 0.50, 0.10),
    '6': (0.10, 0.65, 0.70), '7': (0.90, 0.45, 0.65), '8': (0.50, 0.30, 0.15),
    '9': (0.45, 0.60, 0.20), '*': (0.80, 0.80, 0.80),
}  # fmt: skip
SECONDS = 60.0  # of an episode


def make(
    task: str,
    size: tuple[int, int] = (64, 64),
    repeat: int = 1,
    camera: int = -1,
    seconds: float = SECONDS,
    again: bool = False,
    seed: int = 0,
) -> Env:
    """Build WALKER_MAZE, or WALKER_MAZE_20hz for another number of actions per second than 50.

    Observations: what the walker feels, and what it sees as `walker/egocentric_camera` (uint8,
    size + (3,)). Reward: 1 at the goal, which ends the episode (`again`: starts anew inside of
    it, up to 1000 times). That end and the limit of 60 seconds are not terminal; falling on
    the back is. log/image shows the camera (-1: the walker's own), log/coverage how many
    squares of a meter the episode has visited.
    """
    match = NAME.fullmatch(task)
    if not match:
        raise UserError(
            f'Unknown task in --task loconav_{task}; expected WALKER_MAZE or WALKER_MAZE_20hz '
            f'of {", ".join(WALKERS)} and {", ".join(MAZES)}.'
        )
    name, maze, hertz = match[1], match[2], int(match[3] or 50)
    if not 10 <= hertz <= 250:
        raise UserError(
            f'--task loconav_{task} acts {hertz} times a second; expected 10 to 250.'
        )
    envs.require('labmaze', 'loconav')
    rendering.choose('loconav')
    envs.require('dm_control', 'loconav')
    raw, walker = _environment(name, maze, hertz, size, seconds, again, seed)
    env: Env = FromDM(raw)
    env = Coverage(env, lambda: raw.physics.bind(walker.root_body).xpos[:2])
    env = wrappers.ActionRepeat(env, repeat)
    if camera in (-1, WALKERS[name]):
        return CopyEyes(env)
    return rendering.Camera(env, lambda: raw.physics, size, camera, 'log/image')


class Coverage(ObsWrapper):
    """Adds log/coverage, how many different rounded places the episode has visited."""

    def __init__(self, env: Env, place: Any):
        space = elements.Space(np.float32)
        super().__init__(env, {**env.obs_space, 'log/coverage': space})
        self._place = place
        self._visited: set[tuple] = set()

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        if obs['is_first']:
            self._visited = set()
        self._visited.add(tuple(np.rint(self._place()).astype(int)))
        return {**obs, 'log/coverage': np.float32(len(self._visited))}


class CopyEyes(ObsWrapper):
    """Logs what the walker sees, without drawing it twice."""

    def __init__(self, env: Env):
        super().__init__(env, {**env.obs_space, 'log/image': env.obs_space[EYES]})

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        return {**obs, 'log/image': obs[EYES]}


def _environment(name, maze, hertz, size, seconds, again, seed) -> tuple[Any, Any]:
    from dm_control import composer
    from dm_control.locomotion.props import target_sphere
    from dm_control.locomotion.tasks import random_goal_maze

    class Maze(random_goal_maze.RepeatSingleGoalMaze):
        def get_discount(self, physics):
            self.should_terminate_episode(physics)  # sets it; called later it would be unseen
            return super().get_discount(physics)

    random = np.random.RandomState(seed % 2**32)
    walker = _walker(name)
    substeps = max(4, int(np.ceil(1 / hertz / 0.02)))  # of 0.02 seconds at most
    task = Maze(
        walker=walker,
        maze_arena=_arena(MAZES[maze], random),
        target=target_sphere.TargetSphere(radius=1.2, height_above_ground=0),
        max_repeats=1000 if again else 0,
        target_reward_scale=1.0,
        randomize_spawn_rotation=True,
        contact_termination=False,
        physics_timestep=1 / hertz / substeps,
        control_timestep=1 / hertz,
    )
    eyes = walker.observables.egocentric_camera
    eyes.height, eyes.width = size
    env = composer.Environment(
        task, time_limit=seconds, random_state=random, strip_singleton_obs_buffer_dim=True
    )
    return env, walker


def _walker(name: str) -> Any:
    if name == 'ant':
        from dm_control.locomotion.walkers import ant

        return ant.Ant()
    from embodied.envs import quadruped

    return quadruped.Quadruped()


def _arena(rows: tuple[str, ...], random: Any) -> Any:
    """An arena with the walls of the maze in their colours, each wall of one colour."""
    import labmaze
    from dm_control import composer, mjcf
    from dm_control.locomotion.arenas import mazes

    class Paint(composer.Entity):
        def _build(self, name, color):
            self._root = mjcf.RootElement(model=name)
            self.textures = [
                self._root.asset.add(
                    'texture', type='2d', name='wall', builtin='flat',
                    rgb1=color, width=100, height=100,
                )
            ]  # fmt: skip

        @property
        def mjcf_model(self):
            return self._root

    layout = labmaze.FixedMazeWithRandomGoals(
        entity_layer=''.join(row + '\n' for row in rows),
        num_spawns=1,
        num_objects=1,
        random_state=random,
    )
    walls = sorted({*''.join(rows)} & {*COLORS})
    paints = {x: Paint(f'paint{index}', COLORS[x]) for index, x in enumerate(walls)}
    return mazes.MazeWithTargets(
        maze=layout, xy_scale=1.2, z_height=2.0, wall_textures=paints or None
    )
