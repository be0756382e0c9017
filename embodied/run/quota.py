"""How many episodes of each environment count in an evaluation."""


class Quota:
    """Deals out `episodes` to `envs` environments beforehand and collects their scores.

    To take those that end first would prefer short ones. episodes: 0 takes all there are.
    """

    def __init__(self, episodes: int, envs: int):
        share, rest = divmod(episodes, envs)
        self._limits = [share + (worker < rest) for worker in range(envs)] if episodes else []
        self._scores: list[list[float]] = [[] for _ in range(envs)]

    def add(self, worker: int, score: float) -> bool:
        """Take the score of an episode that ended and return True, if it counts."""
        own = self._scores[worker]
        if self._limits and len(own) >= self._limits[worker]:
            return False
        own.append(score)
        return True

    @property
    def full(self) -> bool:
        """Whether all episodes that were asked for are there."""
        pairs = zip(self._scores, self._limits, strict=False)
        return bool(self._limits) and all(len(own) >= limit for own, limit in pairs)

    @property
    def scores(self) -> list[float]:
        """The scores, env by env."""
        return [score for own in self._scores for score in own]
