"""Wrappers between an environment and the driver.

`wrap` puts on those that every environment gets, from the environment outwards: actions
normalised to [-1, 1], dtypes unified, every value checked against its space, and outermost
actions clipped, so that a policy's sample beyond the bounds is clipped and not refused. The
others are for adapters and users.
"""

from ..base import Env
from .base import Wrapper
from .contract import CheckSpaces, ClipAction, NormalizeAction, UnifyDtypes
from .episodes import ActionRepeat, RestartOnException, TimeLimit
from .values import AddObs, BackwardReturn, DiscretizeAction, FlattenTwoDimObs, ResizeImage

__all__ = [
    'ActionRepeat', 'AddObs', 'BackwardReturn', 'CheckSpaces', 'ClipAction',
    'DiscretizeAction', 'FlattenTwoDimObs', 'NormalizeAction', 'ResizeImage',
    'RestartOnException', 'TimeLimit', 'UnifyDtypes', 'Wrapper', 'wrap',
]  # fmt: skip


def wrap(env: Env, strict: bool = False) -> Env:
    """Return the environment as the driver wants it; strict: see CheckSpaces.

    >>> env = wrap(embodied.envs.make('dummy_cont'))
    >>> act = {k: np.zeros(s.shape, s.dtype) for k, s in env.act_space.items()}
    >>> env.step({**act, 'act_cont': np.full(6, 9.0, np.float32)})['image'].shape  # clipped
    (64, 64, 3)
    """
    return ClipAction(CheckSpaces(UnifyDtypes(NormalizeAction(env)), strict))
