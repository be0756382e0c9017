"""Wrappers that change when an environment is stepped and when its episodes end."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import Env, Step
from ..errors import UserError
from .base import Wrapper


class TimeLimit(Wrapper):
    """Ends episodes after `duration` steps that follow the reset, with is_last alone."""

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
    """Gives each action to the environment `repeat` times, or fewer where the episode ends.

    The reward is the sum, all else comes from the last of these steps. A reset is one step.
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
    """Makes the environment anew when a step raises one of `exceptions`, after `wait` seconds.

    Its episode is cut: the next observation is a first one. More than `maxfails` failures
    within `window` seconds raise the last of them. A UserError is always raised. `make` is
    called without arguments.
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
