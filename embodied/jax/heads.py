"""Heads: an MLP on the features and output layers that give distributions.

`Output` is the last layer alone, for one space and one kind of distribution; `Head` puts an
MLP before one output, or before a dict of outputs by key.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from embodied.core.errors import UserError

from . import distributions as dists
from .nets import MLP, Linear, symlog

f32 = jnp.float32
PLAIN = ('mse', 'huber', 'symlog_mse')
KINDS = (*PLAIN, 'binary', 'categorical', 'onehot', 'symexp_twohot', 'bounded_normal',
         'normal_logstd')  # fmt: skip


class Output(eqx.Module):
    """Output layer for an event of `shape`, with `classes` where the kind is discrete.

    Raises UserError for an unknown kind.
    """

    linears: dict[str, Linear]
    kind: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    unimix: float = eqx.field(static=True)
    minstd: float = eqx.field(static=True)
    maxstd: float = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, inp: int, shape: tuple[int, ...], kind: str, *,
        classes=0, bins=255, unimix=0.0, minstd=0.1, maxstd=1.0,
        outscale=1.0, winit='trunc_normal_in',
    ):  # fmt: skip
        if kind not in KINDS:
            raise UserError(f'Unknown output {kind!r}, expected one of {", ".join(KINDS)}')
        self.kind, self.shape, self.unimix = kind, tuple(shape), unimix
        self.minstd, self.maxstd = minstd, maxstd
        sizes = {
            'binary': {'logit': shape},
            'categorical': {'logits': (*shape, classes)},
            'onehot': {'logits': (*shape, classes)},
            'symexp_twohot': {'logits': (*shape, bins)},
            'bounded_normal': {'mean': shape, 'stddev': shape},
            'normal_logstd': {'mean': shape, 'stddev': shape},
        }.get(kind, {'pred': shape})
        keys = jax.random.split(key, len(sizes))
        self.linears = {
            name: Linear(k, inp, size, winit=winit, outscale=outscale)
            for k, (name, size) in zip(keys, sizes.items(), strict=True)
        }

    def __call__(self, x: Array) -> dists.Distribution:
        """Return the distribution of an event for features (*batch, units)."""
        return self.distribution(self.parameters(x))

    def parameters(self, x: Array) -> dict[str, Array]:
        """Return the parameters of the distribution (*batch, …), float32, by name."""
        return {name: linear(x).astype(f32) for name, linear in self.linears.items()}

    def distribution(self, y: dict[str, Array]) -> dists.Distribution:
        """Return the distribution with these `parameters`."""
        event = len(self.shape)
        match self.kind:
            case 'mse':
                return dists.MSE(y['pred'], event=event)
            case 'symlog_mse':
                return dists.MSE(y['pred'], symlog, event=event)
            case 'huber':
                return dists.Huber(y['pred'], event=event)
            case 'binary':
                return dists.Binary(y['logit'], event=event)
            case 'categorical':
                return dists.Categorical(y['logits'], event=event)
            case 'onehot':
                return dists.OneHot(y['logits'], self.unimix, event=event)
            case 'symexp_twohot':
                bins = dists.symexp_bins(y['logits'].shape[-1])
                return dists.TwoHot(y['logits'], bins, event=event)
            case 'bounded_normal':
                std = (self.maxstd - self.minstd) * jax.nn.sigmoid(
                    y['stddev'] + 2
                ) + self.minstd
                bounds = (self.minstd, self.maxstd)
                return dists.Normal(jnp.tanh(y['mean']), std, bounds, event=event)
            case _:
                return dists.Normal(y['mean'], jnp.exp(y['stddev']), event=event)


class Head(eqx.Module):
    """MLP and one output, or a dict of outputs that share the MLP."""

    mlp: MLP
    head: Output | dict[str, Output]

    def __init__(self, key: PRNGKeyArray, inp: int, outputs: dict, *, layers, units, **kwargs):
        """`outputs`: keyword arguments of Output, or a dict of them by key."""
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(mlp_key, inp, layers, units, **kwargs)
        size = units if layers else inp
        winit = kwargs.get('winit', 'trunc_normal_in')
        if 'kind' in outputs:
            self.head = Output(out_key, size, winit=winit, **outputs)
        else:
            keys = jax.random.split(out_key, len(outputs))
            self.head = {
                name: Output(k, size, winit=winit, **outputs[name])
                for k, name in zip(keys, sorted(outputs), strict=True)
            }

    def __call__(self, x: Array) -> dists.Distribution | dict[str, dists.Distribution]:
        """Return a distribution, or a dict of them, for features (*batch, inp)."""
        x = self.mlp(x)
        if isinstance(self.head, dict):
            return {name: head(x) for name, head in self.head.items()}
        return self.head(x)

    def parameters(self, x: Array) -> dict[str, Array]:
        """Return the parameters of the one output's distribution for features (*batch, inp)."""
        return self.head.parameters(self.mlp(x))

    def distribution(self, parameters: dict[str, Array]) -> dists.Distribution:
        """Return the one output's distribution with these `parameters`."""
        return self.head.distribution(parameters)
