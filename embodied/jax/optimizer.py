"""LaProp with adaptive gradient clipping (paper, section "Optimizer"), on optax.

Order of one update: clip per tensor, RMS scaling, momentum, optional weight decay, learning
rate. The unit of the clipping is a whole parameter; all else treats every number alike, so that
parameters, gradients and moments go through it as one array, see `packing`.
"""

import math
import re
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from embodied.core.errors import UserError

from .packing import Packed

f32 = jnp.float32
LEAST_SCALE = 1e-4


def clip_by_agc(clip: float, pmin: float = 1e-3) -> optax.GradientTransformation:
    """Scale the gradient of each array to a norm of at most `clip` times that of its parameter.

    Parameters of a norm below `pmin` count as `pmin`. clip = 0 turns it off.
    """

    def update(updates: Packed, state, params: Packed | None = None):
        if not clip:
            return updates, state
        limit = clip * jnp.maximum(pmin, jnp.sqrt(params.squares()))
        excess = jnp.maximum(1.0, jnp.sqrt(updates.squares()) / limit)
        return Packed(updates.rows / updates.each(excess), updates.layout), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def decay_weights(rate: float, regex: str) -> optax.GradientTransformation:
    """Add `rate` times the parameter where its name matches."""

    def update(updates: Packed, state, params: Packed | None = None):
        chosen = np.array([bool(re.search(regex, x)) for x in updates.layout.names], f32)
        weight = updates.each(rate * jnp.asarray(chosen))
        return Packed(updates.rows + weight * params.rows, updates.layout), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


class MomentumState(NamedTuple):
    """Number of updates and running mean of scaled gradients, by their names in checkpoints."""

    count: Int[Array, '']
    mu: Any


def scale_by_momentum(beta: float, nesterov: bool = False) -> optax.GradientTransformation:
    """Replace updates by their debiased running mean; nesterov looks one step ahead.

    This is `optax.ema`, which does not look ahead and names its state in another way.
    """
    average = optax.ema(beta, debias=True)

    def init(params):
        return MomentumState(*average.init(params))

    def update(updates, state, params=None):
        before = optax.EmaState(state.count, state.mu)
        debiased, after = average.update(updates, before)
        if nesterov:  # as if the same update came once more
            debiased, _ = average.update(updates, after._replace(count=state.count))
        return debiased, MomentumState(*after)

    return optax.GradientTransformation(init, update)


def learning_rate(lr: float, kind: str, warmup: int, anneal: int) -> optax.Schedule:
    """Learning rate: linear from 0 over `warmup` steps, then const, or linear or cosine
    to a tenth over the next anneal - warmup steps.
    """
    span = anneal - warmup
    if kind != 'const' and span <= 0:
        raise UserError(
            f'Schedule {kind} needs anneal > warmup, found {anneal} and {warmup} '
            '(--agent.opt.anneal, --agent.opt.warmup)'
        )
    after = {
        'const': lambda: optax.constant_schedule(lr),
        'linear': lambda: optax.linear_schedule(lr, 0.1 * lr, span),
        'cosine': lambda: optax.cosine_decay_schedule(lr, span, 0.1),
    }
    if kind not in after:
        raise UserError(f'Unknown schedule {kind!r}, expected one of {", ".join(after)}')
    if not warmup:
        return after[kind]()
    ramp = optax.linear_schedule(0.0, lr, warmup)
    return optax.join_schedules([ramp, after[kind]()], [warmup])


class LossScale(eqx.Module):
    """Dynamic loss scaling for float16: halve on overflow, double after 1000 good steps."""

    scale: Float[Array, '']
    good: Int[Array, '']

    def __init__(self):
        self.scale = jnp.full((), 1e4, f32)
        self.good = jnp.zeros((), jnp.int32)

    def update(self, finite: Array) -> 'LossScale':
        """The scale after a step whose gradients were finite or not."""
        grow = finite & (self.good >= 999)
        scale = jnp.where(finite, jnp.where(grow, 2 * self.scale, self.scale), self.scale / 2)
        good = jnp.where(finite & ~grow, self.good + 1, 0)
        scale = jnp.clip(scale, LEAST_SCALE, 1e5)
        return eqx.tree_at(lambda s: (s.scale, s.good), self, (scale, good))


class Optimizer(eqx.Module):
    """Updates a tree of parameters; its arrays are the moments and counts.

    `step` counts updates that changed the parameters.
    """

    step: Int[Array, '']
    state: Any
    scaling: LossScale | None
    transform: optax.GradientTransformation = eqx.field(static=True)

    def __init__(
        self, params, *, lr=4e-5, agc=0.3, eps=1e-20, beta1=0.9, beta2=0.999, momentum=True,
        nesterov=False, wd=0.0, wdregex=r'/kernel$', schedule='const', warmup=1000, anneal=0,
        loss_scaling=False,
    ):  # fmt: skip
        if eps <= 0:  # what never had a gradient would be divided by it
            raise UserError(f'--agent.opt.eps is {eps}, expected more than 0')
        rms = optax.scale_by_rms(beta2, eps, eps_in_sqrt=False, bias_correction=True)
        parts = [('agc', clip_by_agc(agc)), ('rms', rms)]
        if momentum:
            parts.append(('momentum', scale_by_momentum(beta1, nesterov)))
        if wd:
            parts.append(('wd', decay_weights(wd, wdregex)))
        rate = learning_rate(lr, schedule, warmup, anneal)
        parts.append(('lr', optax.scale_by_learning_rate(rate)))
        self.transform = optax.named_chain(*parts)
        self.state = self.transform.init(Packed.of(params))
        self.step = jnp.zeros((), jnp.int32)
        self.scaling = LossScale() if loss_scaling else None

    def update(self, lossfn, params) -> tuple['Optimizer', Any, Array, Any, dict[str, Array]]:
        """One update by the gradient of `lossfn(params) -> (loss, aux)`.

        Returns the optimizer, the parameters, the loss, aux and metrics (see the names in
        the last lines). With loss scaling, a step with an overflow changes nothing but the
        scale.
        """
        scale = self.scaling.scale if self.scaling else 1.0
        scaled = lambda p: (lambda out: (out[0] * scale, out))(lossfn(p))
        grads, (loss, aux) = jax.grad(scaled, has_aux=True)(params)
        grads, params = Packed.of(grads), Packed.of(params)
        if self.scaling:
            grads = jax.tree.map(lambda g: g / scale, grads)
        updates, state = self.transform.update(grads, self.state, params)
        moved = optax.apply_updates(params, updates)
        step, scaling, metrics = self.step + 1, self.scaling, {}
        if self.scaling:
            finite = jnp.isfinite(global_norm(grads)) & jnp.isfinite(loss)
            keep = lambda new, old: jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)
            moved, state, step = keep((moved, state, step), (params, self.state, self.step))
            scaling = self.scaling.update(finite)
            # What overflows even at the least scale is no matter of scale any more.
            overflow = ~finite & (scale > 1.01 * LEAST_SCALE)
            metrics = {'grad_scale': scaling.scale, 'grad_overflow': overflow.astype(f32)}
        opt = eqx.tree_at(
            lambda o: (o.step, o.state, o.scaling), self, (step, state, scaling),
            is_leaf=lambda x: x is None,
        )  # fmt: skip
        metrics |= {
            'loss': loss,
            'updates': step,
            'grad_norm': global_norm(grads),
            'grad_rms': _rms(grads),
            'update_rms': _rms(updates),
            'param_rms': _rms(moved),
            'param_count': jnp.array(sum(params.layout.sizes), f32),
        }
        return opt, moved.unpack(self.step), loss, aux, metrics


def global_norm(tree: Any) -> Array:
    """Euclidean norm of all arrays of a tree together."""
    return jnp.sqrt(sum(jnp.square(x).sum() for x in jax.tree.leaves(tree)))


def _rms(packed: Packed) -> Array:
    return global_norm(packed) / math.sqrt(sum(packed.layout.sizes))
