"""The driver: steps environments with a policy and hands every transition to its callbacks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import spaces
from .base import Step
from .workers import LocalEnv, ProcessEnv


class Driver:
    """Steps all environments together, with one policy call for the whole batch.

    make_env_fns: one factory per environment. `parallel`: each environment in a process of
    its own (the factories cross by cloudpickle), else all in this process. The first step
    resets every environment.

    A transition holds obs, act (without `reset`), what the policy gave beside it, and the
    `log/` keys, of one environment; its actions are zeros where the episode is over. Arrays of
    a transition are views into fresh batches: they may be kept, and must not be written to.
    """

    def __init__(self, make_env_fns: Sequence[Callable], parallel: bool = True):
        kind = ProcessEnv if parallel else LocalEnv
        self._envs: list[Any] = []
        try:
            for index, make in enumerate(make_env_fns):
                self._envs.append(kind(make, index))
            found = [env.spaces() for env in self._envs]
        except BaseException:
            self.close()
            raise
        self.obs_space, self.act_space = found[0]
        self._check_spaces(found)
        self._callbacks: list[Callable] = []
        self.reset()

    def __len__(self) -> int:
        """The number of environments."""
        return len(self._envs)

    def on_step(self, callback: Callable[[Step, int], Any]) -> None:
        """Call `callback(transition, worker)` for every step of every environment."""
        self._callbacks.append(callback)

    def reset(self, init_policy: Callable[[int], Any] | None = None) -> None:
        """Begin anew: a fresh carry, and all environments reset at the next step."""
        count = len(self)
        self._carry = init_policy(count) if init_policy else None
        self._actions = {
            key: np.zeros((count, *space.shape), space.dtype)
            for key, space in self.act_space.items()
        }
        self._actions['reset'] = np.ones(count, bool)

    def __call__(self, policy: Callable, steps: int = 0, episodes: int = 0) -> None:
        """Run until at least `steps` steps and `episodes` ended episodes, over all envs.

        `policy(carry, obs) -> carry, act, out` with arrays (envs, …); it gets no `log/` keys.
        """
        stepped = ended = 0
        while stepped < steps or ended < episodes:
            stepped += len(self)
            ended += self._step(policy)

    def close(self) -> None:
        """End all environments and their processes; calling it again does nothing."""
        envs, self._envs = self._envs, []
        for env in envs:
            env.ask_to_end()
        for env in envs:
            env.close()

    def _step(self, policy: Callable) -> int:
        """Step every environment once and return how many episodes ended."""
        everything = self._exchange()
        logs = {k: v for k, v in everything.items() if k.startswith('log/')}
        obs = {k: v for k, v in everything.items() if k not in logs}
        self._carry, acts, outs = policy(self._carry, obs)
        acts = self._mask(acts, obs['is_last'])
        outs = {k: np.asarray(v) for k, v in outs.items()}
        self._actions = {**acts, 'reset': obs['is_last'].copy()}
        batch = _join(obs, acts, outs, logs)
        for worker in range(len(self)):
            transition = {key: value[worker] for key, value in batch.items()}
            for callback in self._callbacks:
                callback(transition, worker)
        return int(obs['is_last'].sum())

    def _exchange(self) -> Step:
        """Send every environment its action and return the observations as batches."""
        try:
            for worker, env in enumerate(self._envs):
                env.send({key: value[worker] for key, value in self._actions.items()})
            observations = [env.receive() for env in self._envs]
        except Exception:
            self.close()
            raise
        keys = observations[0].keys()
        return {key: np.stack([obs[key] for obs in observations]) for key in keys}

    def _mask(self, acts: Step, over: np.ndarray) -> Step:
        """Check the policy's actions and return copies with zeros where episodes are over."""
        wanted = {k: s for k, s in self.act_space.items() if k != 'reset'}
        if acts.keys() != wanted.keys():
            raise ValueError(f'The policy acts with {sorted(acts)}, not {sorted(wanted)}.')
        masked = {}
        for key, space in wanted.items():
            value = np.array(acts[key])
            if value.shape != (len(self), *space.shape):
                shape = (len(self), *space.shape)
                raise ValueError(f'Action {key!r} has the shape {value.shape}, not {shape}.')
            value[over] = 0
            masked[key] = value
        return masked

    def _check_spaces(self, found: list[tuple]) -> None:
        """Raise a ValueError unless all environments have the same spaces."""
        for index, pair in enumerate(found):
            for ours, theirs in zip((self.obs_space, self.act_space), pair, strict=True):
                same = ours.keys() == theirs.keys()
                if not same or not all(spaces.equal(ours[k], theirs[k]) for k in ours):
                    self.close()
                    raise ValueError(f'The spaces of env {index} differ from those of env 0.')


def _join(*parts: Step) -> Step:
    """Return one dict of all parts; a key in two of them is a ValueError."""
    joined = {key: value for part in parts for key, value in part.items()}
    if len(joined) != sum(len(part) for part in parts):
        names = [sorted(part) for part in parts]
        raise ValueError(f'obs, act, out and logs share a key: {names}.')
    return joined
