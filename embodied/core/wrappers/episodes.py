"""Wrappers that change when an environment is stepped and when its episodes end."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import Env, Step
from ..errors import UserError
from .base import Wrapper


class TimeLimit(Wrapper):
    """End episodes after `duration` steps that follow the reset, with is_last alone.

    >>> env = TimeLimit(embodied.envs.make('dummy_disc'), duration=2)
    >>> act = {k: np.zeros(s.shape, s.dtype) for k, s in env.act_space.items()}
    >>> [bool(env.step(act)['is_last']) for _ in range(4)]
    [False, False, True, False]
    """

    def __init__(self, env: Env, duration: int):
        super().__init__(env)
        self._duration = duration
        self._steps = 0
        self._over = True

    def step(self, action: Step) -> Step:
        if self._over:
            action = {**action, 'reset': np.bool_(True)}
        obs = dict(self.env.step(action))
        self._steps = 0 if obs['is_first'] else self._steps + 1
        if self._steps >= self._duration:
            obs['is_last'] = np.bool_(True)
        self._over = bool(obs['is_last'])
        return obs


class ActionRepeat(Wrapper):
    """Give each action to the environment `repeat` times, or fewer where the episode ends.

    The reward is the sum, all else comes from the last of these steps. A reset is one step.

    >>> env = ActionRepeat(embodied.envs.make('dummy_disc'), repeat=4)
    >>> act = {k: np.zeros(s.shape, s.dtype) for k, s in env.act_space.items()}
    >>> [int(env.step(act)['count']) for _ in range(3)]  # steps since the reset
    [0, 4, 8]
    """

    def __init__(self, env: Env, repeat: int):
        super().__init__(env)
        if repeat < 1:
            raise UserError(f'An action can be repeated 1 time or more, not {repeat}.')
        self._repeat = repeat

    def step(self, action: Step) -> Step:
        obs = self.env.step(action)
        if obs['is_first']:
            return obs
        reward = float(obs['reward'])
        for _ in range(self._repeat - 1):
            if obs['is_last']:
                break
            obs = self.env.step(action)
            reward += float(obs['reward'])
        return {**obs, 'reward': np.float32(reward)}


class RestartOnException(Wrapper):
    """Make the environment anew when a step raises one of `exceptions`, after `wait` seconds.

    Its episode is cut: the next observation is a first one. More than `maxfails` failures
    within `window` seconds raise the last of them. A UserError is always raised. `make` is
    called without arguments.

    >>> class Fails(embodied.Env):
    ...     def step(self, action):
    ...         raise OSError('the simulator is gone')
    >>> made = iter([Fails(), embodied.envs.make('dummy_disc')])
    >>> env = RestartOnException(lambda: next(made), wait=0.0)
    >>> bool(env.step({'reset': np.bool_(False)})['is_first'])
    Environment is made anew after OSError: the simulator is gone
    True
    """

    def __init__(
        self,
        make: Callable[[], Env],
        exceptions: Any = (Exception,),
        window: float = 300.0,
        maxfails: int = 2,
        wait: float = 20.0,
    ):
        super().__init__(make())
        self._make = make
        self._exceptions = exceptions
        self._window = window
        self._maxfails = maxfails
        self._wait = wait
        self._failed: list[float] = []  # times of the failures within the window

    def step(self, action: Step) -> Step:
        while True:
            try:
                return self.env.step(action)
            except UserError:
                raise
            except self._exceptions as error:
                self._restart(error)
                action = {**action, 'reset': np.bool_(True)}

    def _restart(self, error: Any) -> None:
        now = time.monotonic()
        self._failed = [x for x in self._failed if now - x < self._window] + [now]
        if len(self._failed) > self._maxfails:
            raise error
        print(f'Environment is made anew after {type(error).__name__}: {error}', flush=True)
        try:
            self.env.close()
        except Exception as second:  # what failed once may fail to close
            print(f'Closing it failed: {type(second).__name__}: {second}', flush=True)
        time.sleep(self._wait)
        self.env = self._make()
