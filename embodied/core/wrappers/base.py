"""What all wrappers share."""

from typing import Any

from ..base import Env, Spaces, Step


class Wrapper(Env):
    """Pass everything on; what is not part of the contract too (`wrapper.anything`).

    >>> class Scaled(Wrapper):
    ...     def step(self, action):
    ...         obs = self.env.step(action)
    ...         return {**obs, 'reward': np.float32(0.1 * obs['reward'])}
    >>> env = Scaled(embodied.envs.make('dummy_disc'))
    >>> sorted(env.act_space)
    ['act_cont', 'act_disc', 'reset']
    """

    def __init__(self, env: Env):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or name == 'env':
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def obs_space(self) -> Spaces:
        return self.env.obs_space

    @property
    def act_space(self) -> Spaces:
        return self.env.act_space

    def step(self, action: Step) -> Step:
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()
