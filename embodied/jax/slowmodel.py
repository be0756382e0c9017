"""A slowly moving copy of a model (paper, section "Critic learning": EMA regulariser)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


class SlowModel(eqx.Module):
    """Exponential moving average of the parameters of a model; starts as their copy."""

    copy: Any
    count: Int[Array, '']
    rate: float = eqx.field(static=True)
    every: int = eqx.field(static=True)

    def __init__(self, source, rate: float = 0.02, every: int = 1):
        # A real copy: buffers that two leaves share cannot both be donated.
        self.copy = jax.tree.map(lambda x: jnp.array(x) if eqx.is_array(x) else x, source)
        self.count = jnp.zeros((), jnp.int32)
        self.rate, self.every = rate, every

    def update(self, source) -> 'SlowModel':
        """One step towards the source, on every `every`-th call, beginning with the first."""
        mix = jnp.where(self.count % self.every == 0, self.rate, 0.0)

        def move(slow, fast):
            return (1 - mix) * slow + mix * fast if eqx.is_array(slow) else slow

        copy = jax.tree.map(move, self.copy, source)
        return eqx.tree_at(lambda s: (s.copy, s.count), self, (copy, self.count + 1))
