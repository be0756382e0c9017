"""The recurrent state-space model: what the agent believes and how it goes on.

Paper: section "World model learning" (equation 3), extended data "Sequence model": a block
diagonal GRU for `deter` and categorical variables `stoch`. The state is a dict of
deter (*batch, deter) and stoch (*batch, stoch, classes) one-hot, both in the compute dtype.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from embodied import UserError
from embodied.jax import concat, distributions, recurrence
from embodied.jax.distributions import OneHot
from embodied.jax.nets import BlockLinear, Layer, Linear, Product, dense, units_before

State = dict[str, Array]


class RSSM(eqx.Module):
    """Dynamics: posterior states from observations, prior states from imagination."""

    dynin: tuple[Layer, Layer, Layer]
    dynhid: tuple[Layer, ...]
    dyngru: BlockLinear
    obs: tuple[Layer, ...]
    obslogit: Linear
    prior: tuple[Layer, ...]
    priorlogit: Linear
    act_space: dict[str, Any] = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    unimix: float = eqx.field(static=True)
    absolute: bool = eqx.field(static=True)
    free_nats: float = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, act_space: Mapping[str, Any], tokens: int, dtype, *,
        deter: int, hidden: int, stoch: int, classes: int, blocks: int, act: str, norm: str,
        unimix: float, outscale: float, winit: str, imglayers: int, obslayers: int,
        dynlayers: int, absolute: bool, free_nats: float,
    ):  # fmt: skip
        self.act_space, self.sizes = dict(act_space), (deter, stoch, classes)
        if dynlayers < 1:
            raise UserError(f'--agent.dyn.rssm.dynlayers is {dynlayers}, expected at least 1')
        self.blocks, self.unimix, self.dtype = blocks, unimix, dtype
        self.absolute, self.free_nats = absolute, free_nats
        keys = iter(jax.random.split(key, 6 + dynlayers + obslayers + imglayers))
        opts = dict(norm=norm, act=act, winit=winit)

        def stack(inp, layers):
            return tuple(
                dense(next(keys), hidden if i else inp, hidden, **opts) for i in range(layers)
            )

        flat, action = stoch * classes, concat.width(act_space)
        self.dynin = tuple(dense(next(keys), n, hidden, **opts) for n in (deter, flat, action))
        wide = deter + blocks * 3 * hidden
        self.dynhid = tuple(
            Layer(
                BlockLinear(
                    next(keys), deter if i else wide, units_before(act, deter), blocks,
                    winit=winit,
                ),
                norm, act,
            )
            for i in range(dynlayers)
        )  # fmt: skip
        self.dyngru = BlockLinear(next(keys), deter, 3 * deter, blocks, winit=winit)
        logits = dict(winit=winit, outscale=outscale)
        inp = tokens if absolute else deter + tokens
        self.obs = stack(inp, obslayers)
        inp = hidden if obslayers else inp
        self.obslogit = Linear(next(keys), inp, (stoch, classes), **logits)
        self.prior = stack(deter, imglayers)
        inp = hidden if imglayers else deter
        self.priorlogit = Linear(next(keys), inp, (stoch, classes), **logits)

    def initial(self, batch: int) -> State:
        """State before anything was seen: zeros."""
        deter, stoch, classes = self.sizes
        return {
            'deter': jnp.zeros((batch, deter), self.dtype),
            'stoch': jnp.zeros((batch, stoch, classes), self.dtype),
        }

    def observe(
        self, state: State, tokens: Float[Array, 'b t _'], action: Mapping[str, Array],
        is_first: Bool[Array, 'b t'], key: PRNGKeyArray,
    ) -> tuple[State, State]:  # fmt: skip
        """Posterior states of T steps.

        `action` holds the actions before each step. Returns the last state and the states
        with their posterior `logit`, all (B, T, …). Where a step is first, the state and
        action before it have no influence on anything from there on.
        """
        # Neither tokens nor actions depend on the recurrent state: their shares of the
        # first layers are formed for all steps at once, outside of the scan.
        inputs = (
            self._token_share(tokens), self._action_share(action, is_first), is_first,
        )  # fmt: skip
        inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), inputs)
        # One call of the generator, where one for each step would be many small ones.
        noise = distributions.draws.uniform(key, (*inputs[2].shape, self.sizes[1]))

        def step(cell, state, xs):
            state, logit = self._observe(cell, state, *xs)
            return state, {**state, 'logit': logit}

        state, states = recurrence.scan(step, Cell(self), state, (*inputs, noise))
        return state, jax.tree.map(lambda x: x.swapaxes(0, 1), states)

    def observe_step(
        self, state: State, token: Float[Array, 'b _'], action: Mapping[str, Array],
        is_first: Bool[Array, 'b'], noise: Float[Array, 'b stoch'],
    ) -> State:  # fmt: skip
        """Posterior state of one step, for acting; noise: uniform numbers that select it."""
        share, action = self._token_share(token), self._action_share(action, is_first)
        return self._observe(Cell(self), state, share, action, is_first, noise)[0]

    def imagine(
        self, state: State, visit: Callable[[Array, Array], tuple[dict, Any]], length: int,
        key: PRNGKeyArray,
    ) -> tuple[Array, dict[str, Array], Any]:  # fmt: skip
        """Features (length + 1, B, …) from the start states on, and what `visit` finds there.

        visit(features, noise): actions, and whatever else is to be kept of a step while its
        features are at hand; noise (B, variables) are uniform numbers, one for each variable
        of an action. What follows on the last actions is not imagined. Not made to be
        differentiated.
        """
        cell, stoch = Cell(self), self.sizes[1]
        numbers = stoch + concat.variables(self.act_space)
        noise = distributions.draws.uniform(key, (length + 1, len(state['deter']), numbers))
        feat = jax.eval_shape(features, state)
        # Filled in place: to append the last features to a stack would copy all of it.
        filled = jnp.zeros((length + 1, *feat.shape), feat.dtype)

        def step(carry, xs):
            state, filled = carry
            index, noise = xs
            feat = features(state)
            found = visit(feat, noise[:, stoch:])
            filled = filled.at[index].set(feat)
            state = self._imagine(cell, state, self._action_share(found[0]), noise[:, :stoch])
            return (state, filled), found

        xs = jnp.arange(length), noise[:length]
        (state, filled), found = jax.lax.scan(step, (state, filled), xs)
        feat = features(state)
        last = visit(feat, noise[length, :, stoch:])
        found = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), found, last)
        return filled.at[length].set(feat), *found

    def replay(self, state: State, action: Mapping[str, Array], key: PRNGKeyArray) -> State:
        """Prior states (B, T, …) under recorded actions (B, T, …)."""
        shares, cell = self._action_share(action).swapaxes(0, 1), Cell(self)

        def step(state, xs):
            state = self._imagine(cell, state, *xs)
            return state, state

        noise = distributions.draws.uniform(key, (*shares.shape[:2], self.sizes[1]))
        _, states = jax.lax.scan(step, state, (shares, noise))
        return jax.tree.map(lambda x: x.swapaxes(0, 1), states)

    def loss(self, post: State) -> tuple[dict[str, Array], dict[str, Array]]:
        """Losses dyn and rep (B, T) of posterior states, and the entropies of both sides.

        dyn pulls the prior to the posterior and rep the other way round, each only where
        the divergence exceeds the free nats.
        """
        sg = jax.lax.stop_gradient
        prior_logit = self.prior_logit(post['deter'])
        dyn = self._dist(sg(post['logit'])).kl(self._dist(prior_logit))
        rep = self._dist(post['logit']).kl(self._dist(sg(prior_logit)))
        losses = {
            'dyn': jnp.maximum(dyn, self.free_nats), 'rep': jnp.maximum(rep, self.free_nats),
        }  # fmt: skip
        entropies = {
            'dyn_ent': self._dist(prior_logit).entropy(),
            'rep_ent': self._dist(post['logit']).entropy(),
        }
        return losses, entropies

    def prior_logit(self, deter: Array) -> Array:
        """Logits (*batch, stoch, classes) of stoch given deter alone."""
        x = deter
        for layer in self.prior:
            x = layer(x)
        return self.priorlogit(x)

    def _observe(self, cell, state, token_share, action, is_first, noise):
        state = jax.tree.map(lambda x: _where(is_first, 0, x), state)
        deter = cell(state, action)
        logit = cell.posterior(deter, token_share)
        stoch = self._dist(logit).select(noise).astype(self.dtype)
        return {'deter': deter, 'stoch': stoch}, logit

    def _imagine(self, cell, state, action, noise):
        deter = cell(state, action)
        stoch = self._dist(self.prior_logit(deter)).select(noise).astype(self.dtype)
        return {'deter': deter, 'stoch': stoch}

    def _action_share(self, action: Mapping[str, Array], is_first: Array | None = None):
        x = concat.concat(self.act_space, action, self.dtype)
        x = x / jax.lax.stop_gradient(jnp.maximum(1, jnp.abs(x)))
        if is_first is not None:
            x = _where(is_first, 0, x)
        x = self.dynin[2](x)
        hidden = x.shape[-1]
        start = self.sizes[0] // self.blocks + 2 * hidden
        return self.dynhid[0].linear.shared(start, hidden).product(x)

    def first_obs(self) -> Linear:
        """The first layer that sees tokens."""
        return self.obs[0].linear if self.obs else self.obslogit

    def _token_share(self, tokens: Array) -> Array:
        start = 0 if self.absolute else self.sizes[0]
        layer = self.first_obs().rows(start, tokens.shape[-1])
        return layer.product(tokens.astype(self.dtype))

    def _dist(self, logit: Array) -> OneHot:
        return OneHot(logit, self.unimix, event=1)


class Cell(eqx.Module):
    """What a scan over time needs of the dynamics' parameters, cut beforehand.

    Cut inside of a scan, the gradient of each piece would be padded to the whole kernel at
    every step.
    """

    inputs: tuple[Layer, Layer]
    first: Layer
    common: Product
    rest: tuple[Layer, ...]
    gates: tuple[BlockLinear, ...]
    obs: tuple[Layer, ...]
    obslogit: Linear
    absolute: bool = eqx.field(static=True)

    def __init__(self, dyn: RSSM):
        deter, first = dyn.sizes[0], dyn.dynhid[0].linear
        group = deter // dyn.blocks
        self.inputs, self.rest, self.absolute = dyn.dynin[:2], dyn.dynhid[1:], dyn.absolute
        # Each group sees its own part of deter and all of what the inputs have in common.
        self.first = _with_linear(dyn.dynhid[0], first.rows(0, group))
        hidden = (first.kernel.shape[1] - group) // 3  # of deter, stoch and action each
        self.common = first.shared(group, 2 * hidden)
        self.gates = dyn.dyngru.columns(3)
        self.obs, self.obslogit = dyn.obs, dyn.obslogit
        if not dyn.absolute:  # else the first layer sees tokens alone
            own = dyn.first_obs().rows(0, deter)
            if self.obs:
                self.obs = (_with_linear(self.obs[0], own), *self.obs[1:])
            else:
                self.obslogit = own

    def __call__(self, state: State, action_share: Array) -> Array:
        """Next deter from the state and the action's share of the first hidden layer."""
        deter = state['deter']
        stoch = state['stoch'].reshape(*deter.shape[:-1], -1)
        common = jnp.concatenate([self.inputs[0](deter), self.inputs[1](stoch)], -1)
        x = self.first.linear.product(deter) + self.common.product(common)
        x = self.first.finish(self.first.linear.finish(x + action_share))
        for layer in self.rest:
            x = layer(x)
        reset, cand, update = (layer(x) for layer in self.gates)
        cand = jnp.tanh(jax.nn.sigmoid(reset) * cand)
        update = jax.nn.sigmoid(update - 1)
        return update * cand + (1 - update) * deter

    def posterior(self, deter: Array, token_share: Array) -> Array:
        """Logits (*batch, stoch, classes) given deter and the token's share."""
        x, first = token_share, self.obs[0].linear if self.obs else self.obslogit
        if not self.absolute:
            x = x + first.product(deter)
        x = first.finish(x)
        if not self.obs:
            return x
        x = self.obs[0].finish(x)
        for layer in self.obs[1:]:
            x = layer(x)
        return self.obslogit(x)


def features(state: Mapping[str, Array]) -> Float[Array, '*batch feat']:
    """Input of all heads: deter and flattened stoch."""
    deter, stoch = state['deter'], state['stoch']
    return jnp.concatenate([deter, stoch.reshape(*deter.shape[:-1], -1)], -1)


def _with_linear(layer: Layer, linear: Linear | BlockLinear) -> Layer:
    return eqx.tree_at(lambda x: x.linear, layer, linear)


def _where(cond: Array, x, y: Array) -> Array:
    cond = cond.reshape(*cond.shape, *(1,) * (y.ndim - cond.ndim))
    return jnp.where(cond, jnp.asarray(x, y.dtype), y)
