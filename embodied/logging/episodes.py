"""Statistics of episodes, worker by worker: the one class for all run loops."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .aggregate import Aggregate

REWARD_CHANGE = 0.01  # least difference of two rewards that counts as a change
MAX_FRAMES = 1000  # of a video; a longer episode shows its first frames

Transition = Mapping[str, Any]


class Episodes:
    """Turn transitions into episode/… at the end of each episode and epstats/… in between.

    timeout: seconds after which the episode of a silent worker is dropped; what comes from it
    later counts from its next is_first on. Episodes that are abandoned without is_last are
    dropped as well. The length counts observations, the first one included.

    Numbers and vectors under `log/` become KEY/avg, KEY/max and KEY/sum over the steps of the
    episode that have them; of a text under `log/` there is the last one. What is not finite
    stays so, and is no error.

    >>> episodes = Episodes(timeout=60.0)
    >>> for i in range(3):
    ...     step = {'reward': np.float32(i), 'is_first': i == 0, 'is_last': i == 2, 'log/x': i}
    ...     found = episodes.add(step, worker=0)
    >>> found
    {'episode/score': 3.0, 'episode/length': 3.0}
    >>> stats = episodes.stats()
    >>> float(stats['epstats/log/x/max']), float(stats['epstats/reward_rate'])
    (2.0, 1.0)
    """

    def __init__(self, timeout: float, now: Callable[[], float] = time.monotonic):
        self._timeout = timeout
        self._now = now
        self._running: dict[int, _Episode] = {}
        self._stats = Aggregate()
        self._counts = {'ep_starts': 0, 'ep_ends': 0, 'ep_abandoned': 0}

    def add(self, transition: Transition, worker: int) -> dict[str, float] | None:
        """Return {'episode/score', 'episode/length'} if this step ends an episode."""
        now = self._now()
        if worker in self._running and now - self._running[worker].seen > self._timeout:
            self._abandon(worker)
        if transition['is_first']:
            self._abandon(worker)
            self._counts['ep_starts'] += 1
            self._running[worker] = _Episode(videos=worker == 0)
        episode = self._running.get(worker)
        if episode is None:
            return None
        episode.add(transition, now)
        if not transition['is_last']:
            return None
        del self._running[worker]
        self._counts['ep_ends'] += 1
        self._stats.add(episode.stats(), prefix='epstats')
        return {'episode/score': episode.score, 'episode/length': float(episode.length)}

    def stats(self) -> dict[str, Any]:
        """Return the epstats/… of the episodes ended since the last call, and start anew."""
        limit = self._now() - self._timeout
        for worker in [k for k, v in self._running.items() if v.seen < limit]:
            self._abandon(worker)
        return self._stats.result()

    def counts(self) -> dict[str, int]:
        """Return the episodes that began, ended and were abandoned since the start, and those
        that run now (ep_states).
        """
        return {**self._counts, 'ep_states': len(self._running)}

    def _abandon(self, worker: int) -> None:
        """Drop the episode of a worker, if there is one."""
        if self._running.pop(worker, None):
            self._counts['ep_abandoned'] += 1


class _Episode:
    """Sums over one episode that is still running."""

    def __init__(self, videos: bool):
        self.score = 0.0
        self.length = 0
        self.seen = 0.0  # time of the last step
        self._videos = videos
        self._changes = 0
        self._reward = 0.0  # of the last step
        self._frames: dict[str, list[np.ndarray]] = {}
        self._values: dict[str, _Values] = {}
        self._texts: dict[str, str] = {}

    def add(self, transition: Transition, now: float) -> None:
        reward = float(transition['reward'])
        if self.length and abs(reward - self._reward) >= REWARD_CHANGE:
            self._changes += 1
        self._reward = reward
        self.score += reward
        self.length += 1
        self.seen = now
        for key, value in transition.items():
            value = np.asarray(value)
            if value.dtype == np.uint8 and value.ndim == 3:
                if self._videos:
                    self._add_frame(key, value)
            elif key.startswith('log/') and value.dtype.kind in 'biuf':
                self._add_value(key, value)
            elif key.startswith('log/') and value.dtype.kind in 'US' and not value.ndim:
                self._texts[key] = str(value.astype(str))

    def stats(self) -> dict[str, Any]:
        """Metric -> value, of an episode that is over."""
        stats: dict[str, Any] = dict(self._texts)
        for key, values in self._values.items():
            stats[f'{key}/avg'] = values.total / values.count
            stats[f'{key}/max'] = values.maximum
            stats[f'{key}/sum'] = values.total
        if self.length > 1:
            stats['reward_rate'] = self._changes / (self.length - 1)
        for key, frames in self._frames.items():
            stats[key if key.startswith('log/') else f'policy_{key}'] = np.stack(frames)
        return stats

    def _add_frame(self, key: str, value: np.ndarray) -> None:
        frames = self._frames.setdefault(key, [])
        if frames and frames[0].shape != value.shape:  # which only something unchecked has
            frames.clear()
        if len(frames) < MAX_FRAMES:
            frames.append(value.copy())  # a view would keep the images of all workers alive

    def _add_value(self, key: str, value: np.ndarray) -> None:
        value = value.astype(np.float64)
        values = self._values.get(key)
        if values is None or values.total.shape != value.shape:  # which an info may change
            self._values[key] = _Values(value)
        else:
            values.add(value)


class _Values:
    """Number, sum and maximum of arrays of one shape."""

    def __init__(self, value: np.ndarray):
        self.count, self.total, self.maximum = 1, value, value

    def add(self, value: np.ndarray) -> None:
        self.count += 1
        with np.errstate(all='ignore'):  # the sum of inf and -inf is none, and no error
            self.total = self.total + value
            self.maximum = np.maximum(self.maximum, value)
