"""The contracts between the parts: Env, Agent and Stream.

Arrays are numpy; spaces are `elements.Space`. Shapes carry no batch axis unless said.
"""

from typing import Any

Spaces = dict[str, Any]  # name -> elements.Space
Step = dict[str, Any]  # name -> array


class Env:
    """Take part as one environment: subclasses say their spaces and how they step.

    There is no reset method: the action holds a bool `reset`, and the first step after an
    `is_last` resets whatever the action says. Every observation holds `reward` (float32),
    `is_first`, `is_last` and `is_terminal` (bool); `is_terminal` only where the episode
    really ended, so that a time limit sets `is_last` alone. Keys that start with `log/` are
    logged and reach neither the agent nor the replay; they may be without a space, and then
    there in some steps only.

    >>> flag, side = elements.Space(bool), elements.Space(np.int32, (), 0, 2)
    >>> class Coin(Env):
    ...     obs_space = {
    ...         'side': side, 'reward': elements.Space(np.float32),
    ...         'is_first': flag, 'is_last': flag, 'is_terminal': flag,
    ...     }
    ...     act_space = {'guess': side, 'reset': flag}
    ...     over = True
    ...     def step(self, action):
    ...         first = bool(self.over or action['reset'])
    ...         self.over = not first  # an episode is a reset and one guess of heads
    ...         reward = float(self.over and action['guess'] == 1)
    ...         return dict(
    ...             side=np.int32(1), reward=np.float32(reward), is_first=np.bool_(first),
    ...             is_last=np.bool_(self.over), is_terminal=np.bool_(self.over),
    ...         )
    >>> env = embodied.wrappers.wrap(Coin())
    >>> bool(env.step({'guess': np.int32(0), 'reset': np.bool_(True)})['is_first'])
    True
    >>> float(env.step({'guess': np.int32(1), 'reset': np.bool_(False)})['reward'])
    1.0
    """

    @property
    def obs_space(self) -> Spaces:
        """Spaces of everything that `step` returns."""
        raise NotImplementedError('Env.obs_space')

    @property
    def act_space(self) -> Spaces:
        """Spaces of everything that `step` takes, `reset` among them."""
        raise NotImplementedError('Env.act_space')

    def step(self, action: Step) -> Step:
        """Act once and return the observation that follows."""
        raise NotImplementedError('Env.step')

    def close(self) -> None:
        """Release what the environment holds; it is not used afterwards."""


class Agent:
    """Act and learn: subclasses say how.

    Made from the spaces between agent and environment: `obs_space` without `log/` keys and
    `act_space` without `reset`. Carries are opaque to the caller. Metrics are numpy: scalar,
    vector (histogram), image, video (T, H, W, C uint8), or str.

    >>> class Still(Agent):
    ...     def init_policy(self, batch):
    ...         return None
    ...     def policy(self, carry, obs, mode='train'):
    ...         act = {k: np.zeros((len(obs['is_first']), *s.shape), s.dtype)
    ...                for k, s in self.act_space.items()}
    ...         return carry, act, {}
    >>> agent = Still({}, {'move': elements.Space(np.float32, (2,))})
    >>> carry, act, out = agent.policy(agent.init_policy(3), {'is_first': np.ones(3, bool)})
    >>> act['move'].shape
    (3, 2)
    """

    def __init__(self, obs_space: Spaces, act_space: Spaces, config: Any = None):
        self.obs_space = obs_space
        self.act_space = act_space
        self.config = config

    def init_policy(self, batch: int) -> Any:
        """Return the carry of `policy` for that many environments."""
        raise NotImplementedError('Agent.init_policy')

    def init_train(self, batch: int) -> Any:
        """Return the carry of `train` for that many sequences."""
        raise NotImplementedError('Agent.init_train')

    def ready(self) -> bool:
        """Whether `train` starts at once; False while what it needs is being compiled."""
        return True

    def init_report(self, batch: int) -> Any:
        """Return the carry of `report` for that many sequences."""
        raise NotImplementedError('Agent.init_report')

    def policy(self, carry: Any, obs: Step, mode: str = 'train') -> tuple[Any, Step, Step]:
        """Return (carry, act, out) for observations (batch, …); mode is train or eval.

        act holds every key of `act_space`; out goes into the replay beside obs and act.
        """
        raise NotImplementedError('Agent.policy')

    def train(self, carry: Any, data: Step) -> tuple[Any, dict, dict]:
        """Learn from sequences (batch, time, …) and return (carry, out, metrics).

        `out['replay']`, if there, goes to `Replay.update`.
        """
        raise NotImplementedError('Agent.train')

    def report(self, carry: Any, data: Step) -> tuple[Any, dict]:
        """Return (carry, metrics) for sequences (batch, time, …), and change nothing.

        Batches come from a replay as they are, not through `stream`.
        """
        raise NotImplementedError('Agent.report')

    def stream(self, stream: 'Stream') -> 'Stream':
        """Return a stream whose batches are where this agent computes."""
        raise NotImplementedError('Agent.stream')

    def save(self) -> Any:
        """Return what a checkpoint needs: nested dicts and lists of arrays and scalars."""
        raise NotImplementedError('Agent.save')

    def load(self, data: Any, regex: str | None = None) -> None:
        """Take over what `save` returned; with a regex, only the names that match it."""
        raise NotImplementedError('Agent.load')


class Stream:
    """Give batches without an end, from a place that can be saved.

    A loaded state takes effect for the next batch.

    >>> class Count(Stream):
    ...     place = 0
    ...     def __next__(self):
    ...         self.place += 1
    ...         return {'number': np.full((2, 4), self.place)}
    ...     def save(self):
    ...         return self.place
    ...     def load(self, state):
    ...         self.place = state
    >>> stream = Count()
    >>> stream.load(5)
    >>> int(next(stream)['number'][0, 0])
    6
    """

    def __iter__(self) -> 'Stream':
        return self

    def __next__(self) -> Any:
        raise NotImplementedError('Stream.__next__')

    def ready(self) -> bool:
        """Whether the next batch comes without a wait for others."""
        return True

    def save(self) -> Any:
        """Return the place in the stream: JSON-able, None where there is nothing to keep."""
        raise NotImplementedError('Stream.save')

    def load(self, state: Any) -> None:
        """Go on from what `save` returned."""
        raise NotImplementedError('Stream.load')
