"""The driver: steps environments with a policy and hands every transition to its callbacks."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core import spaces
from ..core.base import Spaces, Step
from ..core.errors import UserError
from ..core.faults import Faults, cut
from ..core.foreign import ForeignWorker
from ..core.waiting import Wait
from ..core.workers import LocalEnv, ProcessEnv, Unguarded, accepts

PATIENCE = 60.0  # seconds for the step that is under way at the end, without a timeout


class Driver:
    """Steps all environments together, with one policy call for the whole batch.

    make_env_fns: one factory per environment. `parallel`: each environment in a process of
    its own (the factories cross by cloudpickle), else all in this process. The first step
    resets every environment.

    A transition holds obs, act (without `reset`), what the policy gave beside it, and the
    `log/` keys, of one environment; its actions are zeros where the episode is over. Arrays of
    a transition are views into fresh batches: they may be kept, and must not be written to.

    An environment that raises, whose process ends, or whose process does not answer within
    `timeout` seconds (0: no limit) is made anew, up to `restarts` times an hour for all
    together, unless that is no use (see `faults`). Its episode is cut: the next observation
    has is_first, and nothing says that the one before was the last. A factory with a parameter
    `attempt` then gets 1, 2 and so on, to make an environment that does not repeat its draws.
    A UserError, such as a value outside of its space, is raised at once with the environment
    and its step; none of that step reaches a callback.

    overlap: environments in processes get their actions before the callbacks are called, and
    step while those run. Transitions and their order stay the same. Environments are then one
    step ahead of what was handed out; `reset` drops that step.
    """

    def __init__(
        self,
        make_env_fns: Sequence[Callable],
        parallel: bool = True,
        timeout: float = 0.0,
        restarts: int = 0,
        python: str = '',
        overlap: bool = False,
    ):
        self._overlap = overlap
        self._under_way = False  # the actions are sent, the observations not yet received
        self._makers = list(make_env_fns)
        self._kind: Callable = ProcessEnv if parallel else LocalEnv
        if python:
            self._kind = functools.partial(ForeignWorker, python=python)
        self._timeout = timeout
        self._faults = Faults(restarts)
        self._attempts = [0] * len(self._makers)  # restarts of each environment
        self._steps = 0  # of each environment
        self.failed = False  # an environment ended it, and nothing of its last step was used
        self._envs: list[Any] = []
        found: list[tuple[Spaces, Spaces]] = []
        try:
            for index in range(len(self._makers)):
                self._envs.append(self._make(index))
            for index in range(len(self)):
                found.append(self._ask(index, lambda env: env.spaces(), 'start'))
                self._check_spaces(index, found)
        except BaseException:
            self.close()
            raise
        self.obs_space, self.act_space = found[0]
        self._callbacks: list[Callable] = []
        self._batch_callbacks: list[Callable] = []
        self.reset()

    def __len__(self) -> int:
        """The number of environments."""
        return len(self._envs)

    def on_step(self, callback: Callable[[Step, int], Any]) -> None:
        """Call `callback(transition, worker)` for every step of every environment."""
        self._callbacks.append(callback)

    def on_batch(self, callback: Callable[[Step, Sequence[int]], Any]) -> None:
        """Call `callback(transitions, workers)` once for the step of all environments.

        transitions: arrays (envs, …). It comes before the calls of `on_step` for that step.
        """
        self._batch_callbacks.append(callback)

    def reset(self, init_policy: Callable[[int], Any] | None = None) -> None:
        """Begin anew: a fresh carry, and all environments reset at the next step."""
        if self._under_way:
            self._exchange()
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
        if self._under_way:  # one that is asked in its step may be ended before it closes
            self._under_way = False
            limit = time.monotonic() + (self._timeout or PATIENCE)
            with Wait('the environments to end their last steps'):
                for env in envs:
                    env.settle(max(0.0, limit - time.monotonic()))
        for env in envs:
            env.ask_to_end()
        for env in envs:
            env.close()

    def _step(self, policy: Callable) -> int:
        """Step every environment once and return how many episodes ended."""
        everything, rare = self._exchange()
        logs = {k: v for k, v in everything.items() if k.startswith('log/')}
        obs = {k: v for k, v in everything.items() if k not in logs}
        self._carry, acts, outs = policy(self._carry, obs)
        acts = self._mask(acts, obs['is_last'])
        outs = {k: np.asarray(v) for k, v in outs.items()}
        self._actions = {**acts, 'reset': obs['is_last'].copy()}
        batch = _join(obs, acts, outs, logs)
        if self._overlap:
            with self._fatal():
                self._send_all()
        for callback in self._batch_callbacks:
            callback(batch, range(len(self)))
        for worker in range(len(self)):
            transition = {key: value[worker] for key, value in batch.items()} | rare[worker]
            for callback in self._callbacks:
                callback(transition, worker)
        return int(obs['is_last'].sum())

    def _exchange(self) -> tuple[Step, list[Step]]:
        """Send every environment its action and return the observations as batches.

        Keep apart, for each environment, what it logs without a space.
        """
        self._steps += 1
        with self._fatal():
            if not self._under_way:
                self._send_all()
            self._under_way = False
            observations = [self._receive(worker) for worker in range(len(self))]
        known = self.obs_space
        rare = [{k: v for k, v in x.items() if _is_rare(k, known)} for x in observations]
        keys = [key for key in observations[0] if key not in rare[0]]
        return {key: np.stack([obs[key] for obs in observations]) for key in keys}, rare

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """End all environments for what one of them raises."""
        try:
            yield
        except BaseException:
            self.failed = True
            self.close()
            raise

    def _send_all(self) -> None:
        for worker in range(len(self)):
            self._send(worker)
        self._under_way = True

    def _send(self, worker: int) -> None:
        self._envs[worker].send({key: value[worker] for key, value in self._actions.items()})

    def _receive(self, worker: int) -> Step:
        """Return the observation of an environment, made anew as often as it fails."""
        failed = False
        while True:
            try:
                if failed:
                    self._restart(worker)
                obs = self._ask(worker, lambda env: env.receive(), 'answer')
            except UserError:
                raise
            except Exception as error:
                self._faults.add(worker, error)
                failed = True
            else:
                if obs['is_last']:
                    self._faults.finished(worker)
                return obs

    def _restart(self, worker: int) -> None:
        """Replace an environment that failed by a new one, and reset that."""
        self._envs[worker].kill()
        self._attempts[worker] += 1
        self._envs[worker] = self._make(worker)
        found = self._ask(worker, lambda env: env.spaces(), 'start')
        self._check_spaces(worker, [(self.obs_space, self.act_space), found])
        self._actions['reset'][worker] = True
        self._send(worker)

    def _make(self, index: int) -> Any:
        make, attempt = self._makers[index], self._attempts[index]
        if attempt and accepts(make, 'attempt'):
            make = functools.partial(make, attempt=attempt)
        with Wait(f'env {index} to be made'):
            return self._kind(make, index, self._timeout)

    def _ask(self, worker: int, fn: Callable[[Any], Any], what: str) -> Any:
        """Return fn(env); a UserError of it gets the environment and its step."""
        try:
            with Wait(f'env {worker} to {what}, step {self._steps}'):
                return fn(self._envs[worker])
        except Unguarded:
            raise
        except UserError as error:
            place = f', step {self._steps}' if self._steps else ''
            raise UserError(f'Env {worker}{place}: {cut(str(error))}') from error

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

    def _check_spaces(self, index: int, found: list[tuple[Spaces, Spaces]]) -> None:
        """Raise a UserError unless the last spaces found equal the first ones."""
        for ours, theirs in zip(found[0], found[-1], strict=True):
            same = ours.keys() == theirs.keys()
            if not same or not all(spaces.equal(ours[k], theirs[k]) for k in ours):
                raise UserError(f'The spaces of env {index} differ from those of env 0.')


def _join(*parts: Step) -> Step:
    """Return one dict of all parts; a key in two of them is a ValueError."""
    joined = {key: value for part in parts for key, value in part.items()}
    if len(joined) != sum(len(part) for part in parts):
        names = [sorted(part) for part in parts]
        raise ValueError(f'obs, act, out and logs share a key: {names}.')
    return joined


def _is_rare(key: str, known: Spaces) -> bool:
    return key.startswith('log/') and key not in known
