"""The actor: forms batches of the observations of all environments and acts on them.

Requests come one by one and are answered when a batch is full, or when its first observation
has waited for PATIENCE seconds, so that the envs that are left go on when others die. The
states of all envs stay in one table, which the agent keeps where it computes, if it offers
`init_table` and `policy_ids`.
"""

import collections
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import rpc, warn
from ...core.errors import UserError
from ...logging import Rate
from . import logger

PATIENCE = 0.05  # seconds
LINGER = 5.0  # seconds at the end for what is on its way
TELL = 5.0  # seconds in which environments elsewhere are still told that the run is over


class Actor:
    """Acts in threads of its own once started. `failure` is the error that ended one.

    step: counter of the training env steps. Transitions go to the replay and to the logger
    before the action that follows them goes to the env. An env whose episode the actor has
    not seen begin is asked for a reset, and so is one that meant another actor: that one may
    have handed on what now comes again.
    """

    def __init__(
        self, agent: Any, step: Any, replay: rpc.Client, log: rpc.Client, args: Any,
    ):  # fmt: skip
        self.failure: BaseException | None = None
        self.rate = Rate()  # of observations acted on
        self._ident = os.urandom(16)
        self._agent, self._step, self._args = agent, step, args
        self._replay, self._logger = Outbox(replay), Outbox(log)
        self._envs = args.envs + args.eval_envs
        self._size = batch_size(args)
        self._table = agent if hasattr(agent, 'policy_ids') else Carries(agent)
        self._states = self._table.init_table(self._envs + 1)  # the last one fills batches up
        self._owners: dict[int, bytes] = {}  # env -> the process whose episode is known
        self._former: dict[int, set[bytes]] = {}  # processes that others have replaced
        self._pending: collections.deque[Request] = collections.deque()
        self._changed = threading.Condition()
        self._acting = threading.Lock()  # the table, the counter, and the order of transitions
        self._over = self._tell = False
        self._told: set[int] = set()  # envs that know that the run is over
        self._threads = [
            threading.Thread(target=self._run, name=f'actor{i}', daemon=True)
            for i in range(args.actor_threads)
        ]

    def start(self) -> None:
        """Begin to act."""
        for thread in self._threads:
            thread.start()

    def ident(self) -> bytes:
        """The endpoint of that name: which actor this is."""
        return self._ident

    def act(self, reply: Any, message: dict) -> None:
        """The endpoint: {actor, envid, is_eval, obs, warnings} of one env. Replies [act, word].

        `actor` is the `ident` that the env was told. The word is go; reset (act is of no
        meaning then, and `ident` is to be asked again); or end, when the run is over. Each of
        the warnings, [topic, text], is said once for all envs.
        """
        request = Request(reply, message, self._args, self._agent.obs_space)
        for topic, text in message.get('warnings', ()):
            warn.once(str(topic), str(text))
        with self._changed:
            if not self._over:
                self._pending.append(request)
                self._changed.notify()
                return
        self._tell_end(request)

    def close(self, tell: bool) -> None:
        """Stop acting. tell: that the run is over, to environments that ask within seconds.

        Otherwise what they ask stays unanswered, and they ask the next actor.
        """
        with self._changed:
            self._over, self._tell = True, tell
            left, self._pending = self._pending, collections.deque()
            self._changed.notify_all()
        for request in left:
            self._tell_end(request)
        limit = time.monotonic() + LINGER
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, limit - time.monotonic()))
        for outbox in (self._replay, self._logger):
            outbox.close(limit)
        with self._changed:
            known = {*self._owners}
            self._changed.wait_for(lambda: not tell or self._told >= known, TELL)

    def _tell_end(self, request: 'Request') -> None:
        if not self._tell:
            return
        request.answer(zeros(self._agent.act_space), 'end')
        with self._changed:
            self._told.add(request.envid)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while requests := self._take():
                self._act(requests)
        except BaseException as error:  # the thread that learns raises it
            if not self._over:
                self.failure = error

    def _take(self) -> list['Request']:
        """Wait for a batch; none when the run is over."""
        with self._changed:
            while not self._over:
                if not self._pending or self._step >= self._args.steps:
                    self._changed.wait()  # in the latter case for the end
                    continue
                left = self._pending[0].time + PATIENCE - time.monotonic()
                if len(self._pending) >= self._size or left <= 0:
                    count = min(self._size, len(self._pending))
                    return [self._pending.popleft() for _ in range(count)]
                self._changed.wait(left)
        return []

    def _act(self, requests: list['Request']) -> None:
        with self._acting:
            requests = [x for x in requests if self._knows(x)]
            if not requests:
                return
            ids = np.array([x.envid for x in requests], np.int32)
            act, transitions = self._policy(ids, [x.obs for x in requests])
            self._send(ids, transitions, [x.logs for x in requests])
        for row, request in enumerate(requests):
            request.answer({k: v[row] for k, v in act.items()}, 'go')

    def _knows(self, request: 'Request') -> bool:
        """Whether the episode of the request is known, or begins; else asks for a reset."""
        if request.actor != self._ident:
            request.answer(zeros(self._agent.act_space), 'reset')
            return False
        if request.obs['is_first'] and self._owners.get(request.envid) != request.client:
            former = self._former.setdefault(request.envid, set())
            if request.client in former:  # two take turns; one that is gone does not come back
                request.refuse(f'Environment {request.envid} is played by two processes.')
                return False
            if request.envid in self._owners:
                former.add(self._owners[request.envid])
            self._owners[request.envid] = request.client
        if self._owners.get(request.envid) == request.client:
            return True
        request.answer(zeros(self._agent.act_space), 'reset')
        return False

    def _policy(self, ids: np.ndarray, rows: Sequence[dict]) -> tuple[dict, dict]:
        """Actions and transitions of the envs."""
        count = len(ids)
        # Compiled for one size: the rest repeats the last row into a place of its own.
        full = np.full(self._size, self._envs, np.int32)
        full[:count] = ids
        filled = [*rows, *[rows[-1]] * (self._size - count)]
        obs = {k: np.stack([x[k] for x in filled]) for k in rows[0]}
        self._states, act, out = self._table.policy_ids(self._states, full, obs)
        self.rate.add(count)
        cut = lambda tree: {k: v[:count] for k, v in tree.items()}
        obs, act, out = cut(obs), cut(act), cut(out)
        masked = {}
        for key, value in act.items():
            masked[key] = np.array(value)
            masked[key][obs['is_last']] = 0
        return act, {**obs, **masked, **out}

    def _send(self, ids: np.ndarray, transitions: dict, logs: Sequence[dict]) -> None:
        envs = self._args.envs
        is_eval = ids >= envs
        about = {'envid': ids, 'is_eval': is_eval}
        self._replay.send('add_batch', {**about, **transitions})
        self._step.increment(int((~is_eval).sum()))  # of what is on its way
        shown = [row for row, envid in enumerate(ids) if envid in (0, envs)]
        parts = logger.rows(transitions, logs, shown)
        self._logger.send('transitions', {**about, **parts, 'step': int(self._step)})


class Request:
    """One observation, checked, and where its answer goes."""

    def __init__(self, reply: Any, message: dict, args: Any, obs_space: dict):
        self.time = time.monotonic()
        self.client, self.actor = reply.client, message.get('actor')
        self.envid, envs = int(message['envid']), args.envs + args.eval_envs
        if not 0 <= self.envid < envs:
            raise UserError(
                f'Environment {self.envid} is none of the {envs} of this run '
                '(run.envs + run.eval_envs); start it with the same flags.'
            )
        if bool(message['is_eval']) != (self.envid >= args.envs):
            raise UserError(
                f'Environment {self.envid} is {"not " * (self.envid < args.envs)}one of '
                'evaluation here; start all parts with the same run.envs and run.eval_envs.'
            )
        obs = message['obs']
        missing = obs_space.keys() - obs.keys()
        if missing:
            raise UserError(f'Environment {self.envid} does not send {sorted(missing)}.')
        self.obs = {k: np.asarray(obs[k]) for k in obs_space}
        for key, space in obs_space.items():  # values are checked where they arise
            value = self.obs[key]
            if value.shape != space.shape or value.dtype != space.dtype:
                raise UserError(
                    f'Environment {self.envid} sends {key!r} as {value.dtype} {value.shape}; '
                    f'the agent was made for {space.dtype} {space.shape}.'
                )
        self.logs = {k: v for k, v in obs.items() if k.startswith('log/')}
        self._reply = reply

    def answer(self, act: dict, word: str) -> None:
        """Send [act, word] to the environment."""
        self._reply([act, word])

    def refuse(self, reason: str) -> None:
        """Send an error to the environment, which ends it."""
        self._reply.error(UserError(reason))


class Outbox:
    """Calls of one client whose answers only matter if they are errors."""

    def __init__(self, client: rpc.Client):
        self._client = client
        self._futures: collections.deque[Any] = collections.deque()

    def send(self, method: str, *args: Any) -> None:
        """Send; waits while too much is under way. Raises what an earlier call was told."""
        while self._futures and self._futures[0].done():
            self._futures.popleft().result()
        self._futures.append(self._client.call(method, *args))

    def close(self, limit: float) -> None:
        """Wait for what is under way, until a time; then close the client."""
        with contextlib.suppress(Exception):  # the run is over
            while self._futures:
                self._futures.popleft().result(max(0.0, limit - time.monotonic()))
        self._client.close()


class Carries:
    """The table of states for an agent that has none: rows of its carry in this process."""

    def __init__(self, agent: Any):
        self._agent = agent

    def init_table(self, capacity: int) -> Any:
        """States of `capacity` environments."""
        return _map(np.array, self._agent.init_policy(capacity))

    def policy_ids(self, table: Any, ids: np.ndarray, obs: dict, mode: str = 'train') -> tuple:
        """Act for the environments `ids`; returns the table, act and out."""
        rows = _map(lambda x: x[ids], table)
        rows, act, out = self._agent.policy(rows, obs, mode)

        def put(old: np.ndarray, new: Any) -> np.ndarray:
            old[ids] = new
            return old

        return _map(put, table, rows), act, out


def dismiss(act_space: dict, args: Any) -> None:
    """Tell environments that ask within seconds that there is nothing to do in this run."""
    told: set[int] = set()

    def act(reply: Any, message: dict) -> None:
        reply([zeros(act_space), 'end'])
        told.add(int(message['envid']))

    server = rpc.Server(args.actor_addr, 'actor', args.bind)
    server.bind('ident', lambda: b'')
    server.defer('act', act, once=True)
    limit = time.monotonic() + TELL
    with server:
        while len(told) < args.envs + args.eval_envs and time.monotonic() < limit:
            time.sleep(PATIENCE)


def batch_size(args: Any) -> int:
    """Observations per call of the policy: run.actor_batch, by default half of the envs."""
    envs = args.envs + args.eval_envs
    return max(1, min(envs, args.actor_batch if args.actor_batch > 0 else envs // 2))


def zeros(space: dict) -> dict[str, np.ndarray]:
    """An action that means nothing."""
    return {k: np.zeros(x.shape, x.dtype) for k, x in space.items()}


def _map(fn: Callable, *trees: Any) -> Any:
    """Apply a function to the arrays of trees of dicts, lists and tuples."""
    first = trees[0]
    if isinstance(first, dict):
        return {k: _map(fn, *[x[k] for x in trees]) for k in first}
    if isinstance(first, (list, tuple)):
        return type(first)(_map(fn, *xs) for xs in zip(*trees, strict=True))
    return fn(*trees)
