"""Returns and the losses of actor and critic: pure functions of arrays.

Paper: sections "Critic learning" (equations 4 to 6) and "Actor learning" (equations 7, 8).
Time is the first axis. B sequences or N starts, T steps, H imagined steps, H1 = H + 1 states.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from embodied.jax.distributions import Distribution, Sampled
from embodied.jax.normalize import Normalizer

f32 = jnp.float32
sg = jax.lax.stop_gradient


def lambda_return(
    last: Float[Array, 'T B'], term: Float[Array, 'T B'], rew: Float[Array, 'T B'],
    boot: Float[Array, 'T B'], disc: float, lam: float,
) -> Float[Array, 'T-1 B']:  # fmt: skip
    """Return the λ-returns of steps 0 … T-2 (equation 4), the last bootstrapped with boot[-1].

    last (0 or 1) cuts the sum at the end of a sequence and bootstraps there; term (0…1) is
    the probability that nothing follows; rew[t] is the reward on arriving at step t. Raises
    ValueError for other shapes.
    """
    _check_one_shape(last, term, rew, boot)
    live, cont = (1 - term)[1:] * disc, (1 - last)[1:] * lam
    fixed = rew[1:] + (1 - cont) * live * boot[1:]

    def step(ret, xs):
        ret = xs[0] + xs[1] * ret
        return ret, ret

    return jax.lax.scan(step, boot[-1], (fixed, live * cont), reverse=True)[1]


def critic_loss(
    value: Distribution, slowval: Float[Array, 'T B'], ret: Float[Array, 'T1 B'], slowreg: float
) -> Float[Array, 'T-1 B']:  # fmt: skip
    """Return the negative log-likelihood of the returns, and, for stability, of what the slow
    critic predicts (equations 5 and 6).

    `value` and slowval cover T states, ret T1 = T - 1: the last one has no return. Only `value`
    gets a gradient.
    """
    padded = jnp.concatenate([ret, jnp.zeros_like(ret[-1:])])
    return (value.loss(sg(padded)) + slowreg * value.loss(sg(slowval)))[:-1]


def advantage(
    ret: Float[Array, 'T B'], baseline: Float[Array, 'T B'], retnorm: Normalizer
) -> Float[Array, 'T B']:
    """Subtract the baseline from the return, in units of the range of returns (equation 7)."""
    _, scale = retnorm.offset_scale()
    return (ret - baseline) / scale


def actor_loss(
    logp: Float[Array, 'T B'], entropy: Float[Array, 'T B'], adv: Float[Array, 'T B'],
    actent: float,
) -> Float[Array, 'T B']:  # fmt: skip
    """Return Reinforce's loss with an entropy bonus (equation 8), adv without gradient."""
    return -(logp * sg(adv) + actent * entropy)


def imag_loss(
    logp: Float[Array, 'H1 N'], entropies: Mapping[str, Float[Array, 'H1 N']],
    value: Distribution, rew: Float[Array, 'H1 N'], con: Float[Array, 'H1 N'],
    slowval: Float[Array, 'H1 N'], norms: Mapping[str, Normalizer], *,
    update: bool, contdisc: bool, horizon: int, slowtar: bool, lam: float, actent: float,
    slowreg: float,
) -> tuple[
    dict[str, Array], Float[Array, 'H1-1 N'], dict[str, Normalizer], dict[str, Array]
]:  # fmt: skip
    """Return losses of actor and critic on imagined trajectories of H steps from N starts.

    All arrays cover the H + 1 states: logp of the action taken there, the policy's entropy by
    action, the critic's distribution `value`, predicted reward, continuation and slow value.
    `norms` are retnorm, valnorm and advnorm; with `update` they see this batch first. Returns
    the losses `policy` and `value` (H, N), the λ-returns (H, N), the normalisers and metrics.
    """
    seen = lambda name, x: norms[name].update(x) if update else norms[name]
    disc = 1.0 if contdisc else 1 - 1 / horizon
    weight = sg(jnp.cumprod(disc * con, 0) / disc)
    val = norms['valnorm'].denormalize(sg(value.pred()))
    slow = norms['valnorm'].denormalize(slowval)
    baseline = slow if slowtar else val
    ret = lambda_return(jnp.zeros_like(con), 1 - con, rew, baseline, disc, lam)

    retnorm, valnorm = seen('retnorm', ret), seen('valnorm', ret)
    adv = advantage(ret, baseline[:-1], retnorm)
    advnorm = seen('advnorm', adv)
    entropy = sum(entropies.values(), start=jnp.zeros(()))
    policy = actor_loss(logp[:-1], entropy[:-1], advnorm.normalize(adv), actent)
    target = valnorm.normalize(ret)
    critic = critic_loss(value, slowval, target, slowreg)
    losses = {'policy': weight[:-1] * policy, 'value': weight[:-1] * critic}

    norms = {'retnorm': retnorm, 'valnorm': valnorm, 'advnorm': advnorm}
    means = dict(rew=rew, con=con, val=val, slowval=slow, tar=target, weight=weight)
    metrics = {name: x.mean() for name, x in means.items()}
    metrics |= {f'ent/{key}': x[:-1].mean() for key, x in entropies.items()}
    return losses, ret, norms, metrics | _spread(adv, retnorm.normalize(ret))


def repl_loss(
    last: Float[Array, 'T B'], term: Float[Array, 'T B'], rew: Float[Array, 'T B'],
    boot: Float[Array, 'T B'], value: Distribution, slowval: Float[Array, 'T B'],
    valnorm: Normalizer, *, update: bool, horizon: int, lam: float, slowreg: float,
) -> tuple[Float[Array, 'T-1 B'], Normalizer]:  # fmt: skip
    """Return the loss of the critic on replayed trajectories; boot are imagined returns.

    value and slowval are what critic and slow critic give for the replayed states. Steps that
    end an episode are left out. Beside the loss, returns the normaliser.
    """
    ret = lambda_return(last, term, rew, boot, 1 - 1 / horizon, lam)
    valnorm = valnorm.update(ret) if update else valnorm
    loss = critic_loss(value, slowval, valnorm.normalize(ret), slowreg)
    return (1 - last)[:-1] * loss, valnorm


def entropy_metrics(
    metrics: Mapping[str, Array], policy: Mapping[str, Sampled]
) -> dict[str, Array]:
    """Return metrics `rand/KEY`: how far `ent/KEY` is from the least to the greatest possible.

    `policy` are the distributions of any one state.
    """
    found = {}
    for key, dist in policy.items():
        if bounds := dist.entropy_bounds():
            low, high = bounds
            found[f'rand/{key}'] = (metrics[f'ent/{key}'] - low) / (high - low)
    return found


def named_losses(losses: Mapping[str, Any]) -> dict[str, Array]:
    """Return metrics `loss/KEY` of losses by key."""
    return {f'loss/{key}': loss.mean() for key, loss in losses.items()}


def _check_one_shape(*arrays: Array) -> None:
    shapes = [x.shape for x in arrays]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2:
        raise ValueError(f'lambda_return needs four arrays of one shape (T, B), found {shapes}')


def _spread(adv: Array, ret: Array) -> dict[str, Array]:
    """Return metrics of the advantages and of the normalised returns."""
    return {
        'adv': adv.mean(), 'adv_std': adv.std(), 'adv_mag': jnp.abs(adv).mean(),
        'ret': ret.mean(), 'ret_min': ret.min(), 'ret_max': ret.max(),
        'ret_rate': (jnp.abs(ret) >= 1).astype(f32).mean(),
    }  # fmt: skip
