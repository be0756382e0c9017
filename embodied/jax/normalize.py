"""Running normalisers of returns, values and advantages (paper, section "Actor learning").

The state is float32 and part of the training state; statistics span the whole batch, also
where it is sharded over devices.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from embodied.core.errors import UserError

f32 = jnp.float32
IMPLS = {'none': (), 'meanstd': ('mean', 'sqrs'), 'perc': ('lo', 'hi')}


class Normalizer(eqx.Module):
    """Offset and scale of a stream of numbers: `none`, `meanstd` or `perc` (percentiles).

    `debias` divides by the running weight `corr` of the updates so far, so that early
    statistics are not drawn towards the initial zero.
    """

    stats: dict[str, Float[Array, '']]
    impl: str = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    limit: float = eqx.field(static=True)
    perclo: float = eqx.field(static=True)
    perchi: float = eqx.field(static=True)
    debias: bool = eqx.field(static=True)

    def __init__(self, impl, rate=0.01, limit=1e-8, perclo=5.0, perchi=95.0, debias=True):
        if impl not in IMPLS:
            raise UserError(f'Unknown normaliser {impl!r}, expected one of {", ".join(IMPLS)}')
        self.impl, self.rate, self.limit = impl, rate, limit
        self.perclo, self.perchi, self.debias = perclo, perchi, debias
        corr = ('corr',) if debias and impl != 'none' else ()
        self.stats = {name: jnp.zeros((), f32) for name in (*IMPLS[impl], *corr)}

    def update(self, x: Array) -> 'Normalizer':
        """The normaliser after it has seen all entries of x."""
        if self.impl == 'none':
            return self
        x = jax.lax.stop_gradient(x.astype(f32))
        if self.impl == 'meanstd':
            seen = {'mean': x.mean(), 'sqrs': jnp.square(x).mean()}
        else:
            seen = {
                'lo': jnp.percentile(x, self.perclo),
                'hi': jnp.percentile(x, self.perchi),
            }
        if self.debias:
            seen['corr'] = jnp.ones((), f32)
        stats = {k: (1 - self.rate) * v + self.rate * seen[k] for k, v in self.stats.items()}
        return eqx.tree_at(lambda n: n.stats, self, stats)

    def offset_scale(self) -> tuple[Array, Array]:
        """Numbers to subtract and to divide by; (0, 1) for `none`."""
        if self.impl == 'none':
            return jnp.zeros((), f32), jnp.ones((), f32)
        stats = dict(self.stats)
        if self.debias:
            corr = jnp.maximum(self.rate, stats.pop('corr'))
            stats = {k: v / corr for k, v in stats.items()}
        if self.impl == 'meanstd':
            variance = stats['sqrs'] - jnp.square(stats['mean'])
            scale = jnp.sqrt(jnp.maximum(0, variance))
            return stats['mean'], jnp.maximum(self.limit, scale)
        return stats['lo'], jnp.maximum(self.limit, stats['hi'] - stats['lo'])

    def normalize(self, x: Array) -> Array:
        """Return x without the offset, in units of the scale."""
        offset, scale = self.offset_scale()
        return (x - offset) / scale

    def denormalize(self, x: Array) -> Array:
        """Return what `normalize` made into x."""
        offset, scale = self.offset_scale()
        return x * scale + offset
