"""Returns and the losses of actor and critic: pure functions of arrays.

Paper: sections "Critic learning" (equations 4 to 6) and "Actor learning" (equations 7, 8).
Time is the second axis. B sequences or N starts, T steps, H imagined steps, H1 = H + 1 states.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from embodied.jax.distributions import Sampled
from embodied.jax.normalize import Normalizer

# over(fn, *xs): fn(dist, *xs) of a head's distributions and arrays, at all steps.
Over = Callable[..., Any]
f32 = jnp.float32
sg = jax.lax.stop_gradient


def lambda_return(
    last: Float[Array, 'B T'], term: Float[Array, 'B T'], rew: Float[Array, 'B T'],
    boot: Float[Array, 'B T'], disc: float, lam: float,
) -> Float[Array, 'B T-1']:  # fmt: skip
    """λ-returns of steps 0 … T-2 (equation 4), the last one bootstrapped with boot[:, -1].

    last (0 or 1) cuts the sum at the end of a sequence and bootstraps there; term (0…1) is
    the probability that nothing follows; rew[:, t] is the reward on arriving at step t.
    """
    if not last.shape == term.shape == rew.shape == boot.shape or last.ndim != 2:
        shapes = [x.shape for x in (last, term, rew, boot)]
        raise ValueError(f'lambda_return needs four arrays of one shape (B, T), found {shapes}')
    live = (1 - term)[:, 1:] * disc
    cont = (1 - last)[:, 1:] * lam
    fixed = rew[:, 1:] + (1 - cont) * live * boot[:, 1:]

    def step(ret, xs):
        fixed, weight = xs
        ret = fixed + weight * ret
        return ret, ret

    xs = (fixed.T, (live * cont).T)
    _, rets = jax.lax.scan(step, boot[:, -1], xs, reverse=True)
    return rets.T


def imag_loss(
    act: Mapping[str, Array],
    rew: Float[Array, 'N H1'],
    con: Float[Array, 'N H1'],
    slowval: Float[Array, 'N H1'],
    policy: Over,
    value: Over,
    norms: Mapping[str, Normalizer],
    *,
    update: bool,
    contdisc: bool,
    horizon: int,
    slowtar: bool,
    lam: float,
    actent: float,
    slowreg: float,
) -> tuple[dict[str, Array], Float[Array, 'N H1-1'], dict[str, Normalizer], dict[str, Array]]:
    """Losses of policy and value on imagined trajectories of H steps from N starts.

    act and what the heads predict cover all H + 1 states: slowval is what the slow critic
    gives there, `policy` and `value` apply functions to the distributions of actor and critic.
    `norms` are retnorm, valnorm and advnorm; with `update` they see this batch first. Returns
    the losses (N, H), the λ-returns (N, H), the normalisers and scalar metrics.
    """
    voffset, vscale = norms['valnorm'].offset_scale()
    slowpred = slowval
    val = sg(value(lambda dist: dist.pred())) * vscale + voffset
    slowval = slowpred * vscale + voffset
    tarval = slowval if slowtar else val
    disc = 1.0 if contdisc else 1 - 1 / horizon
    weight = jnp.cumprod(disc * con, 1) / disc
    ret = lambda_return(jnp.zeros_like(con), 1 - con, rew, tarval, disc, lam)

    norms = dict(norms)
    if update:
        norms['retnorm'] = norms['retnorm'].update(ret)
    roffset, rscale = norms['retnorm'].offset_scale()
    adv = (ret - tarval[:, :-1]) / rscale
    if update:
        norms['advnorm'] = norms['advnorm'].update(adv)
    aoffset, ascale = norms['advnorm'].offset_scale()
    adv_normed = (adv - aoffset) / ascale
    logpi, ents = jax.tree.map(lambda x: x[:, :-1], policy(_acting, act))
    policy_loss = sg(weight[:, :-1]) * -(logpi * sg(adv_normed) + actent * sum(ents.values()))

    if update:
        norms['valnorm'] = norms['valnorm'].update(ret)
    value_loss, tar_normed = _value_loss(value, slowpred, ret, norms['valnorm'], slowreg)
    losses = {'policy': policy_loss, 'value': sg(weight[:, :-1]) * value_loss}

    ret_normed = (ret - roffset) / rscale
    metrics = {
        'adv': adv.mean(), 'adv_std': adv.std(), 'adv_mag': jnp.abs(adv).mean(),
        'rew': rew.mean(), 'con': con.mean(), 'ret': ret_normed.mean(),
        'val': val.mean(), 'tar': tar_normed.mean(), 'weight': weight.mean(),
        'slowval': slowval.mean(), 'ret_min': ret_normed.min(), 'ret_max': ret_normed.max(),
        'ret_rate': (jnp.abs(ret_normed) >= 1).astype(f32).mean(),
    }  # fmt: skip
    return losses, ret, norms, metrics | {f'ent/{k}': v.mean() for k, v in ents.items()}


def repl_loss(
    last: Float[Array, 'B T'], term: Float[Array, 'B T'], rew: Float[Array, 'B T'],
    boot: Float[Array, 'B T'], slowval: Float[Array, 'B T'], value: Over,
    valnorm: Normalizer, *, update: bool, horizon: int, lam: float, slowreg: float,
) -> tuple[Float[Array, 'B T-1'], Normalizer]:  # fmt: skip
    """Loss of the value on replayed trajectories; boot are the imagined returns at each step.

    slowval and value are as for `imag_loss`, on the replayed states.

    Steps that end an episode are left out. Returns the loss and the normaliser.
    """
    disc = 1 - 1 / horizon
    weight = 1 - last
    ret = lambda_return(last, term, rew, boot, disc, lam)
    if update:
        valnorm = valnorm.update(ret)
    loss, _ = _value_loss(value, slowval, ret, valnorm, slowreg)
    return weight[:, :-1] * loss, valnorm


def randomness(metrics: Mapping[str, Array], policy: Mapping[str, Sampled]) -> dict[str, Array]:
    """Metrics `rand/KEY`: how far `ent/KEY` is from the least to the greatest possible.

    `policy` are the distributions of any one state.
    """
    found = {}
    for key, dist in policy.items():
        if bounds := dist.entropy_bounds():
            low, high = bounds
            found[f'rand/{key}'] = (metrics[f'ent/{key}'] - low) / (high - low)
    return found


def _acting(policy: Mapping[str, Sampled], act: Mapping[str, Array]) -> tuple[Any, dict]:
    """Log-probability of what was done, and entropy of each action."""
    logp = sum(dist.logp(sg(act[key])) for key, dist in policy.items())
    return logp, {key: dist.entropy() for key, dist in policy.items()}


def _value_loss(
    value: Over, slowval: Array, ret: Array, valnorm: Normalizer, slowreg: float
) -> tuple[Array, Array]:
    """Cross-entropy with the normalised return and, for stability, with the slow value."""
    offset, scale = valnorm.offset_scale()
    target = sg((ret - offset) / scale)
    padded = jnp.concatenate([target, jnp.zeros_like(target[:, -1:])], 1)
    both = lambda dist, target, slow: dist.loss(target) + slowreg * dist.loss(slow)
    return value(both, padded, sg(slowval))[:, :-1], target


def named_losses(losses: Mapping[str, Any]) -> dict[str, Array]:
    """Metrics `loss/KEY` of losses by key."""
    return {f'loss/{key}': loss.mean() for key, loss in losses.items()}
