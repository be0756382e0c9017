"""The global generators of `random`, `numpy.random` and torch, from which environments draw.

The project itself never draws from them. They are seeded for environments alone, so that one
seed is one run with an environment that uses them too. Environments in one process share
them; each that is made or reset for the first time seeds them anew, in an order that is fixed.
"""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .base import Env, Step
from .wrappers.base import Wrapper

MADE, RESET = 0, 1  # what the generators are seeded for


def seed_globals(seed: int, purpose: int = MADE) -> None:
    """Seed the global generators; that of torch only if something has imported torch."""
    number = int(np.random.SeedSequence([seed, purpose]).generate_state(1)[0])
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    if torch := sys.modules.get('torch'):
        torch.manual_seed(number)


class SeedGlobals(Wrapper):
    """Seeds the global generators at the first reset of an environment."""

    def __init__(self, env: Env, seed: int):
        super().__init__(env)
        self._seed: int | None = seed

    def step(self, action: Step) -> Step:
        if self._seed is not None:
            seed_globals(self._seed, RESET)
            self._seed = None
        return self.env.step(action)


class Apart:
    """Global generators of their own for what is done while this is entered.

    What comes at moments that differ from run to run, such as an evaluation, then leaves
    other environments of the process alone.
    """

    def __init__(self) -> None:
        self._states = _states()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Let the global generators go on where they were here, and put them back."""
        others = _states()
        _restore(self._states)
        try:
            yield
        finally:
            self._states = _states()
            _restore(others)


def _states() -> dict[str, Any]:
    states = {'random': random.getstate(), 'numpy': np.random.get_state()}  # noqa: NPY002
    if torch := sys.modules.get('torch'):
        states['torch'] = torch.get_rng_state()
    return states


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states['random'])
    np.random.set_state(states['numpy'])  # noqa: NPY002
    if 'torch' in states:
        sys.modules['torch'].set_rng_state(states['torch'])
