"""Spaces that an agent can be built for: how many keys, and how many classes.

Checked before JAX is imported, by name and number, so that nothing is allocated or compiled for
what cannot end.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied import UserError, spaces

# Every key is a layer of its own, and compiling takes more than in proportion to their number.
# For the smallest model, 64, 200 and 400 actions took 30, 94 and 275 s of a CPU and 0.8, 1.8
# and 3.5 GB, as many observations 21, 58 and 146 s; a thousand would take half an hour. Entries
# of one key cost nothing there: Box(100000) compiles in 11 s.
ACTIONS, OBSERVATIONS = 256, 512
# The policy gives one number for each class of an action in each imagined state: 16,384 states
# in a batch of the default size, so 17 GB for an array of this width in float32, and the actor
# loss keeps four (logits, probabilities, their logarithms, the one-hot action). No accelerator
# has room for more; what is too much for the one at hand, the estimate says.
WIDTH = 2**18


def check(obs_space: Mapping[str, Any], act_space: Mapping[str, Any]) -> None:
    """Raise a UserError for keys or classes that are too many for any machine."""
    for what, found, most in (
        ('action', act_space, ACTIONS),
        ('observation', [k for k in obs_space if k not in spaces.FLAGS], OBSERVATIONS),
    ):
        if len(found) > most:
            raise UserError(
                f'The environment has {len(found):,} {what} keys '
                f'({", ".join([*found][:3])}, …); expected at most {most}, since each is '
                'compiled by itself. Join them to arrays in the environment; a MultiDiscrete '
                'with equal counts is one.'
            )
    widths = {key: _width(space) for key, space in act_space.items()}
    if sum(widths.values()) > WIDTH:
        key = max(widths, key=lambda x: widths[x])
        raise UserError(
            f'Action {key!r} takes {widths[key]:,} outputs of the policy '
            f'({_form(act_space[key])}); expected at most {WIDTH:,} for all actions. Make it '
            'coarser, or several actions, in the environment.'
        )


def _width(space: Any) -> int:
    """Classes of all entries, or the number of entries that are numbers."""
    entries = math.prod(space.shape)
    return entries * _classes(space) if space.discrete else entries


def _classes(space: Any) -> int:
    low, high = spaces.bounds(space)
    return int(np.max(high)) - int(np.min(low)) + 1


def _form(space: Any) -> str:
    if not space.discrete:
        return f'numbers of shape {space.shape}'
    return f'{_classes(space):,} classes' + (f', shape {space.shape}' if space.shape else '')
