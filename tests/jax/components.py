"""Recorded figures of small parts, tests/golden/components.npz."""

import functools
import pathlib

import jax.numpy as jnp
import numpy as np

FILE = pathlib.Path(__file__).parent.parent / 'golden' / 'components.npz'


@functools.cache
def _all():
    return dict(np.load(FILE))


def load(prefix):
    """Arrays below a prefix, by the rest of their names."""
    cut = len(prefix) + 1
    return {k[cut:]: jnp.asarray(v) for k, v in _all().items() if k.startswith(prefix + '/')}
