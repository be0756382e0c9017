"""Distributions over the outputs of heads and over the latent state, all in float32.

Every draw goes through `draws`, the single place where randomness enters the algorithm: the
golden tests replace it by modes there. Methods reduce over the axes of one event: `event`
trailing axes of independent variables are summed by loss, logp, entropy and kl.

Paper: sections "World model learning" (one-hot with 1% uniform mixture, KL), "Critic
learning" and "Reward prediction" (symexp twohot).
"""

import abc
import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from . import nets

f32 = jnp.float32
sg = jax.lax.stop_gradient
FEW = 8  # classes whose probabilities are added up one by one, not by a product of matrices
# Classes that one product with a matrix (classes, classes) adds up. At 256 that takes 1.0 to 2
# times as long as blocks do on a CPU, at 512 2 to 3, at 4,096 over 10, beside its memory.
MANY, BLOCK = 256, 32


class Draws:
    """Random draws. One instance, `draws`, serves all distributions."""

    def uniform(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Uniform numbers in [0, 1)."""
        return jax.random.uniform(key, shape, f32)

    def categorical(self, uniform: Array, logits: Array) -> Int[Array, '*batch']:
        """Index over the last axis of logits, by a uniform number for each.

        By inversion: the number of cumulative probabilities that a uniform number reaches. That
        takes one random number for each variable, where the Gumbel-max trick takes one for
        each class. Probabilities are met up to the resolution of uniform numbers, 1e-7.
        """
        probs, classes = jax.nn.softmax(logits), logits.shape[-1]
        if classes > FEW:
            sums = _running_sums(probs)
            return (uniform[..., None] * sums[..., -1:] >= sums[..., :-1]).sum(-1)
        *sums, total = itertools.accumulate(probs[..., i] for i in range(classes))
        reached = [(uniform * total >= x).astype(jnp.int32) for x in sums]
        return sum(reached, start=jnp.zeros(uniform.shape, jnp.int32))

    def normal(self, uniform: Array) -> Array:
        """Standard normal numbers, by inversion of uniform ones."""
        least = np.nextafter(np.float32(-1), np.float32(0))
        return math.sqrt(2) * jax.lax.erf_inv(jnp.maximum(2 * uniform - 1, least))


draws = Draws()


class Distribution(eqx.Module):
    """What a head predicts."""

    event: int = eqx.field(static=True, kw_only=True, default=0)

    @abc.abstractmethod
    def pred(self) -> Array:
        """Point prediction: mean or most probable value."""

    @abc.abstractmethod
    def loss(self, target: Array) -> Array:
        """Error of the target, one number for each event. Targets get no gradient."""

    def _sum(self, x: Array) -> Array:
        return x.sum(tuple(range(-self.event, 0))) if self.event else x


class Likelihood(Distribution):
    """A distribution whose loss is the negative log-likelihood."""

    @abc.abstractmethod
    def logp(self, event: Array) -> Array:
        """Log-probability or log-density."""

    def loss(self, target: Array) -> Array:
        return -self.logp(sg(target))


class Sampled(Likelihood):
    """A distribution that can be drawn from: latent variables and policies."""

    @property
    @abc.abstractmethod
    def variables(self) -> tuple[int, ...]:
        """Shape of the independent variables: a draw takes one uniform number for each."""

    @abc.abstractmethod
    def select(self, uniform: Float[Array, '*variables']) -> Array:
        """The sample that uniform numbers in [0, 1) select."""

    def sample(self, key: PRNGKeyArray) -> Array:
        """One draw for each entry of the batch."""
        return self.select(draws.uniform(key, self.variables))

    @abc.abstractmethod
    def entropy(self) -> Array:
        """Entropy of each event in nats."""

    @abc.abstractmethod
    def entropy_bounds(self) -> tuple[Any, Any] | None:
        """Least and greatest entropy of one event, None if there are none."""


class MSE(Distribution):
    """Squared error in the space of `squash` (identity or symlog), where `mean` lives too.

    A target of -inf means "not available" and has no error.
    """

    mean: Array
    squash: Callable = eqx.field(static=True, default=lambda x: x)

    def pred(self):
        return self.mean

    def loss(self, target):
        target = sg(target.astype(f32))
        error = jnp.where(target == -jnp.inf, 0, self.mean - self.squash(target))
        return self._sum(jnp.square(error))


class Huber(Distribution):
    """Smooth absolute error sqrt(e² + 1) - 1; predicts the mean."""

    mean: Array

    def pred(self):
        return self.mean

    def loss(self, target):
        error = self.mean - sg(target.astype(f32))
        return self._sum(jnp.sqrt(jnp.square(error) + 1) - 1)


class Binary(Likelihood):
    """Bernoulli variable; the target of the loss may be a probability."""

    logit: Array

    def pred(self):
        return self.logit > 0

    def prob(self) -> Array:
        """Probability of True."""
        return jax.nn.sigmoid(self.logit)

    def logp(self, event):
        event = event.astype(f32)
        yes, no = jax.nn.log_sigmoid(self.logit), jax.nn.log_sigmoid(-self.logit)
        return self._sum(event * yes + (1 - event) * no)


class Categorical(Sampled):
    """Integer classes 0, 1, … over the last axis of the logits; `unimix` mixes in uniform."""

    logits: Float[Array, '*batch classes']

    def __init__(self, logits: Array, unimix: float = 0.0, event: int = 0):
        self.event = event
        self.logits = _mix(logits.astype(f32), unimix)

    def pred(self):
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    @property
    def variables(self):
        return self.logits.shape[:-1]

    def select(self, uniform: Float[Array, '*batch']) -> Int[Array, '*batch']:
        return draws.categorical(uniform, self.logits).astype(jnp.int32)

    def logp(self, event):
        onehot = jax.nn.one_hot(event, self.logits.shape[-1], dtype=f32)
        return self._sum((jax.nn.log_softmax(self.logits) * onehot).sum(-1))

    def entropy(self) -> Array:
        logprob = jax.nn.log_softmax(self.logits)
        return self._sum(-(jnp.exp(logprob) * logprob).sum(-1))

    def entropy_bounds(self) -> tuple[float, float]:
        shape = self.logits.shape
        variables = math.prod(shape[len(shape) - 1 - self.event : -1])
        return 0.0, variables * math.log(shape[-1])


class OneHot(Sampled):
    """One-hot vectors; samples carry the straight-through gradient of the probabilities."""

    logits: Float[Array, '*batch classes']

    def __init__(self, logits: Array, unimix: float = 0.0, event: int = 0):
        self.event = event
        self.logits = _mix(logits.astype(f32), unimix)

    def pred(self):
        return self._onehot(jnp.argmax(self.logits, -1))

    @property
    def variables(self):
        return self.logits.shape[:-1]

    def select(self, uniform: Float[Array, '*batch']) -> Float[Array, '*batch classes']:
        return self._onehot(draws.categorical(uniform, self.logits))

    def logp(self, event):
        return self._sum((jax.nn.log_softmax(self.logits) * event).sum(-1))

    def entropy(self) -> Array:
        return Categorical(self.logits, event=self.event).entropy()

    def entropy_bounds(self) -> tuple[float, float]:
        return Categorical(self.logits, event=self.event).entropy_bounds()

    def kl(self, other: 'OneHot') -> Array:
        """KL divergence from the other distribution to this one, in nats."""
        mine, theirs = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return self._sum((jnp.exp(mine) * (mine - theirs)).sum(-1))

    def _onehot(self, index: Array) -> Array:
        probs = jax.nn.softmax(self.logits)
        onehot = jax.nn.one_hot(index, self.logits.shape[-1], dtype=f32)
        return sg(onehot) + (probs - sg(probs))


class Normal(Sampled):
    """Independent normal variables. `bounds` are the least and greatest std a head can give."""

    mean: Array
    std: Array
    bounds: tuple[float, float] | None = eqx.field(static=True, default=None)

    def pred(self):
        return self.mean

    @property
    def variables(self):
        return self.mean.shape

    def select(self, uniform: Array) -> Array:
        return self.mean + self.std * draws.normal(uniform)

    def logp(self, event):
        error = (event.astype(f32) - self.mean) / self.std
        return self._sum(-0.5 * (jnp.square(error) + jnp.log(2 * jnp.pi)) - jnp.log(self.std))

    def entropy(self) -> Array:
        return self._sum(self._entropy(self.std))

    def entropy_bounds(self) -> tuple[Array, Array] | None:
        if self.bounds is None:
            return None
        shape = self.mean.shape[self.mean.ndim - self.event :]
        low, high = (self._entropy(jnp.full(shape, std)).sum() for std in self.bounds)
        return low, high

    def kl(self, other: 'Normal') -> Array:
        """KL divergence from the other distribution to this one, in nats."""
        ratio = jnp.square(self.std / other.std)
        shift = jnp.square((other.mean - self.mean) / other.std)
        return self._sum(0.5 * (ratio + shift - 1 - jnp.log(ratio)))

    def _entropy(self, std: Array) -> Array:
        return 0.5 * jnp.log(2 * jnp.pi * jnp.square(std)) + 0.5


class TwoHot(Distribution):
    """Distribution over fixed bins, trained on the two bins that enclose the target.

    The bins are symmetric around 0, see `symexp_bins`. The prediction is the mean, summed over
    pairs of a positive bin and its negative partner, so that uniform logits give exactly 0.
    """

    logits: Float[Array, '*batch bins']
    bins: Float[Array, 'bins']

    def pred(self):
        # As differences of probabilities: products that are only then subtracted would leave
        # their rounding errors, where a compiler forms one of them without rounding.
        probs = jax.nn.softmax(self.logits)
        half = self.logits.shape[-1] // 2
        low, high = probs[..., :half], probs[..., -half:]
        more = high - low[..., ::-1]
        return (more * nets.along(self.bins[-half:], more)).sum(-1)

    def loss(self, target):
        weights = twohot(sg(target.astype(f32)), self.bins)
        return self._sum(-(weights * jax.nn.log_softmax(self.logits)).sum(-1))


def symexp_bins(count: int) -> Float[Array, 'bins']:
    """Bins symexp(-20) … symexp(20), exactly symmetric around 0 (which even counts skip)."""
    if count % 2:
        half = nets.symexp(jnp.linspace(-20, 0, (count - 1) // 2 + 1, dtype=f32))
        return jnp.concatenate([half, -half[:-1][::-1]])
    half = nets.symexp(jnp.linspace(-20, 0, count // 2, dtype=f32))
    return jnp.concatenate([half, -half[::-1]])


def twohot(target: Float[Array, '*batch'], bins: Float[Array, 'bins']) -> Array:
    """Weights (*batch, bins) of the two bins around each target, by closeness, summing to 1.

    Targets beyond the ends put all weight on the end bin.
    """
    count = len(bins)
    edges = nets.along(bins, target[..., None])
    reached = (edges <= target[..., None]).sum(-1)
    below, above = jnp.maximum(reached - 1, 0), jnp.minimum(reached, count - 1)
    same = below == above
    to_below = jnp.where(same, 1, jnp.abs(bins[below] - target))
    to_above = jnp.where(same, 1, jnp.abs(bins[above] - target))
    total = jnp.where(jnp.isnan(target), jnp.nan, to_below + to_above)
    return (
        jax.nn.one_hot(below, count) * (to_above / total)[..., None]
        + jax.nn.one_hot(above, count) * (to_below / total)[..., None]
    )


def _running_sums(x: Float[Array, '*batch n']) -> Float[Array, '*batch n']:
    """Sums of the first 1, 2, … n entries.

    As products of matrices, which take fewer kernels than `jnp.cumsum`; beyond MANY entries in
    each of many blocks, and over the sums of the blocks in turn.
    """
    count = x.shape[-1]
    if count <= MANY:
        return _upto(x)
    pad = lambda x, *ends: jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), ends])
    within = _upto(pad(x, 0, -count % BLOCK).reshape(*x.shape[:-1], -1, BLOCK))
    before = pad(_running_sums(within[..., -1])[..., :-1], 1, 0)
    return (within + before[..., None]).reshape(*x.shape[:-1], -1)[..., :count]


def _upto(x: Float[Array, '*batch n']) -> Float[Array, '*batch n']:
    """The same by one product."""
    matrix = np.triu(np.ones((x.shape[-1],) * 2, np.float32))
    return jnp.dot(x, matrix, precision='highest')


def _mix(logits: Array, unimix: float) -> Array:
    if not unimix:
        return logits
    probs = (1 - unimix) * jax.nn.softmax(logits) + unimix / logits.shape[-1]
    return jnp.log(probs)
