"""A trained agent to act with, outside of the run loops: `dreamerv3.load(folder).act(obs)`.

An agent's part of a checkpoint holds its spaces and its config, so that a copied checkpoint
is all there needs to be: neither the run's config.yaml nor its environment.
"""

import os
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from dreamerv3 import checks, factories, paths
from dreamerv3 import config as configs
from embodied import UserError, checkpoint, spaces
from embodied.core import warn

# What an observation may leave out, with what stands for it.
FLAGS = {'reward': 0.0, 'is_first': False, 'is_last': False, 'is_terminal': False}

SPACES = ('obs_space', 'act_space')  # in an agent's part of a checkpoint

# Where the run was trained says nothing about where its agent acts.
HERE = {
    'jax.policy_devices': [0],
    'jax.train_devices': [0],
    'jax.policy_mesh': '-1,1,1',
    'jax.train_mesh': '-1,1,1',
    'jax.mock_devices': 0,
    'jax.expect_devices': 0,
    'jax.prealloc': False,
    'jax.coordinator_address': '',
    'jax.enable_policy': True,
}


def load(folder: str | os.PathLike, seed: int | None = None, platform: str = 'auto') -> 'Actor':
    """Load a trained agent from a run folder, its ckpt folder, or one checkpoint of it.

    Its actions are samples that repeat with the seed, by default the run's. platform: auto
    takes an accelerator if there is one. Raises UserError if there is no trained agent.
    """
    data = checkpoint.read(folder, ['agent'])['agent']
    if 'config' not in data:
        raise UserError(
            f'The agent in {folder} does not say its spaces: it acts at random or comes from '
            'the reference. Expected a checkpoint of a trained agent of this package.'
        )
    own = {'jax.platform': platform, **HERE}
    own |= {} if seed is None else {'seed': seed}
    # Keys that came after the version that saved it have their defaults.
    defaults = factories.agent_config(configs.load())
    config = elements.Config({**defaults.flat, **data['config']})
    if config.jax.compilation_cache:  # not a folder that a foreign checkpoint names
        own['jax.compilation_cache'] = default_cache()
    config = config.update(own)
    from embodied.jax.runtime.setup import setup

    setup(config.jax)
    from dreamerv3.agent import Agent

    agent = Agent(_read(data['obs_space']), _read(data['act_space']), config)
    agent.load(data)
    return Actor(agent)


def default_cache() -> str:
    """The folder of jax.compilation_cache in configs.yaml."""
    key = 'jax.compilation_cache'
    return paths.absolute(configs.blocks()['defaults'])[key]


def describe(
    obs_space: Mapping[str, Any], act_space: Mapping[str, Any], config: elements.Config
) -> dict[str, Any]:
    """What an agent's part of a checkpoint needs beside its parameters for `load`."""
    write = lambda space: {
        'dtype': space.dtype.name,
        'shape': list(space.shape),
        'low': np.array(space.low),
        'high': np.array(space.high),
    }
    return {
        'config': {k: list(v) if isinstance(v, tuple) else v for k, v in config.flat.items()},
        'obs_space': {k: write(space) for k, space in obs_space.items()},
        'act_space': {k: write(space) for k, space in act_space.items()},
    }


def differences(
    data: Mapping[str, Any], obs_space: Mapping[str, Any], act_space: Mapping[str, Any]
) -> list[str]:
    """Which keys of a saved agent's spaces are others here, and how; none if it has no spaces.

    Ranges and types of numbers do not count, since the same model takes them.
    """
    if 'obs_space' not in data:
        return []
    old = {k: _kind(x) for part in SPACES for k, x in _read(data[part]).items()}
    new = {k: _kind(x) for k, x in {**obs_space, **act_space}.items()}
    return [
        f'{key!r} {old.get(key, "missing")} there, {new.get(key, "missing")} here'
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _kind(space: elements.Space) -> str:
    """What of a space decides the arrays of an agent."""
    from embodied.jax import concat

    if space.dtype == np.uint8 and len(space.shape) == 3:
        return f'images {space.shape}'
    if not space.discrete:
        return f'numbers {space.shape}'
    return f'{concat.classes(space)} classes' + (f' {space.shape}' if space.shape else '')


def _read(described: Mapping[str, Any]) -> dict[str, elements.Space]:
    return {
        key: elements.Space(x['dtype'], tuple(x['shape']), x['low'], x['high'])
        for key, x in described.items()
    }


class Actor:
    """Acts for one environment or a batch of them, and remembers their episodes.

    `obs_space` and `act_space` hold the spaces between agent and environment: float actions
    with two finite bounds are in [-1, 1]. `dreamerv3.wrap` gives an environment with them.
    Actions lie in `act_space`: what the policy draws beyond its bounds is clipped, as in
    training.
    """

    def __init__(self, agent: Any):
        self.obs_space, self.act_space = dict(agent.obs_space), dict(agent.act_space)
        self._agent = agent
        self._guards = {k: spaces.Guard(space) for k, space in self.obs_space.items()}
        self._keys = [k for k in self.obs_space if k not in FLAGS]
        self._bounds = {
            k: spaces.bounds(x) for k, x in self.act_space.items() if x.dtype.kind == 'f'
        }
        self.reset()

    def reset(self) -> None:
        """Forget the episodes: the next observation is the first of one."""
        self._carry: Any = None
        self._over = np.ones(0, bool)  # of each environment: a new episode comes next

    def act(self, obs: Mapping[str, Any] | np.ndarray) -> dict[str, np.ndarray]:
        """The action for an observation, or actions (batch, …) for observations (batch, …).

        obs: dict by key, or an array where there is one key. Values without a batch axis are
        those of one environment. Flags may be left out: an episode starts at is_first, after
        is_last, after `reset`, and when the number of environments changes. Raises UserError
        naming what lies outside of its space.
        """
        obs = self._named(obs)
        key = self._keys[0]
        single = np.ndim(obs[key]) == len(self.obs_space[key].shape)
        batch = 1 if single else len(obs[key])
        if batch != len(self._over):
            self._carry = self._agent.init_policy(batch)
            self._over = np.ones(batch, bool)
        obs = {**FLAGS, **obs}
        values = {key: self._value(key, obs[key], batch, single) for key in self.obs_space}
        values['is_first'] = values['is_first'] | self._over
        self._over = values['is_last']
        self._carry, act, _ = self._agent.policy(self._carry, values, mode='eval')
        act |= {k: np.clip(act[k], *bounds) for k, bounds in self._bounds.items()}
        return {k: v[0] if single else v for k, v in act.items()}

    def _named(self, obs: Any) -> Mapping[str, Any]:
        if not isinstance(obs, Mapping):
            if len(self._keys) > 1:
                raise UserError(f'Expected an observation with the keys {self._keys}.')
            return {self._keys[0]: obs}
        for key in self._keys:
            if key not in obs:
                hint = checks.nearest(key, obs)
                raise UserError(f'The observation lacks {key!r}; it has {sorted(obs)}.{hint}')
        return obs

    def _value(self, key: str, value: Any, batch: int, single: bool) -> np.ndarray:
        """The value with batch axis and dtype of its space."""
        space, array = self.obs_space[key], np.asarray(value)
        if key in FLAGS and not array.ndim:
            array = np.full(batch, array)
        elif single:
            array = array[None]
        if array.dtype != space.dtype and array.dtype.kind in 'biuf':
            with np.errstate(all='ignore'):
                cast = array.astype(space.dtype)
            if space.dtype.kind == 'f' or np.array_equal(cast, array):
                array = cast
        for row in array:
            if beyond := self._guards[key].check(f'Observation {key!r}', row, strict=False):
                warn.once(f'act {key}', f'{beyond}; the agent acts on it all the same.')
        if len(array) != batch:
            count = len(array)
            raise UserError(f'Observation {key!r} is of {count} environments, not of {batch}.')
        return array
