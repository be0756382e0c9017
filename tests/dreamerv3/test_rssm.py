"""The recurrent model: resets, imagination, gradients."""

import itertools

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3.rssm import RSSM, features
from embodied.jax import distributions, recurrence

KEY = jax.random.key(0)
ACT = {
    'move': elements.Space(np.float32, 2, -1, 1),
    'jump': elements.Space(np.int32, (), 0, 3),
}
SIZES = dict(
    deter=16, hidden=8, stoch=3, classes=4, blocks=4, act='silu', norm='rms', unimix=0.01,
    outscale=1.0, winit='trunc_normal_in', imglayers=2, obslayers=1, dynlayers=1,
    absolute=False, free_nats=1.0,
)  # fmt: skip
B, T = 2, 6


def make(**changes):
    return RSSM(KEY, ACT, 5, jnp.float32, **{**SIZES, **changes})


def inputs(seed=0, length=T):
    rng = np.random.default_rng(seed)
    action = {
        'move': jnp.asarray(rng.normal(size=(B, length, 2)), jnp.float32),
        'jump': jnp.asarray(rng.integers(0, 3, (B, length))),
    }
    tokens = jnp.asarray(rng.normal(size=(B, length, 5)), jnp.float32)
    return tokens, action, jnp.zeros((B, length), bool)


def carry(dyn, seed=0):
    deter, stoch = jax.random.split(jax.random.key(seed))
    return {
        'deter': jax.random.normal(deter, (B, 16)),
        'stoch': jax.random.normal(stoch, (B, 3, 4)),
    }


@pytest.mark.parametrize(
    ('changed', 'first'),
    [*itertools.product(('carry', 'move', 'jump'), (0, 3)), ('tokens', 3)],
)
def test_nothing_before_the_first_step_of_an_episode_has_influence(changed, first):
    dyn = make()
    observe = eqx.filter_jit(dyn.observe)
    tokens, action, is_first = inputs()
    is_first = is_first.at[0, first].set(True)
    _, before = observe(carry(dyn), tokens, action, is_first, KEY)
    state = carry(dyn, 1) if changed == 'carry' else carry(dyn)
    if changed == 'carry':
        state['deter'] = state['deter'].at[0, 0].set(jnp.nan)
    if changed == 'tokens':
        tokens = tokens.at[:, :first].add(1)
    if changed in action:
        # The action that led to the first step belongs to the episode before.
        other = (action[changed][:, : first + 1] + 1) % 3
        action[changed] = action[changed].at[:, : first + 1].set(other)
    _, after = observe(state, tokens, action, is_first, KEY)
    for key in before:
        np.testing.assert_array_equal(before[key][0, first:], after[key][0, first:])
    # The other sequence, where no episode begins, does depend on it.
    assert (before['deter'][1, first:] != after['deter'][1, first:]).any()


def test_one_step_after_another_is_the_scan():
    dyn = make()
    tokens, action, is_first = inputs()
    drawn = distributions.draws.uniform(KEY, (T, B, 3))
    _, states = dyn.observe(carry(dyn), tokens, action, is_first, KEY)
    state = carry(dyn)
    for t in range(T):
        act = {k: v[:, t] for k, v in action.items()}
        state = dyn.observe_step(state, tokens[:, t], act, is_first[:, t], drawn[t])
        np.testing.assert_allclose(state['deter'], states['deter'][:, t], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(
            state['stoch'].argmax(-1), states['stoch'][:, t].argmax(-1)
        )


def test_every_step_and_sequence_has_draws_of_its_own():
    """Where all logits are the same, or zero, draws alone make the states differ."""
    dyn, count = make(), lambda x: len(np.unique(x.reshape(B * T, -1), axis=0))
    tokens, action, is_first = jax.tree.map(jnp.zeros_like, inputs())
    _, states = dyn.observe(carry(dyn), tokens, action, is_first | True, KEY)
    assert count(states['logit']) == 1
    assert count(states['stoch']) > B * T // 2
    dyn = eqx.tree_at(lambda x: x.priorlogit.kernel, dyn, replace_fn=jnp.zeros_like)
    assert count(dyn.replay(carry(dyn), action, KEY)['stoch']) > B * T // 2
    act = {k: v[:, 0] for k, v in action.items()}
    feat, *_ = dyn.imagine(carry(dyn), lambda feat, noise: (act, None), T, KEY)
    assert count(feat[1:, :, 16:]) > B * T // 2


def test_absolute_posteriors_depend_on_the_token_alone():
    dyn = make(absolute=True)
    tokens, action, is_first = inputs()
    _, a = dyn.observe(carry(dyn), tokens, action, is_first, KEY)
    _, b = dyn.observe(carry(dyn, 1), tokens, action, is_first, KEY)
    np.testing.assert_array_equal(a['logit'], b['logit'])
    assert (a['deter'] != b['deter']).any()


def test_imagination_under_recorded_actions_is_the_replay_of_them():
    dyn = make()
    state = carry(dyn)
    _, action, _ = inputs(length=1)
    act = {k: v[:, 0] for k, v in action.items()}
    feat, acts, seen = dyn.imagine(state, lambda feat, noise: (act, feat[:, 0]), 3, KEY)
    assert feat.shape == (4, B, 16 + 3 * 4)
    assert acts['move'].shape == (4, *act['move'].shape)
    np.testing.assert_array_equal(acts['move'][3], act['move'])
    np.testing.assert_array_equal(feat[0], features(state))
    np.testing.assert_allclose(seen, feat[..., 0], rtol=1e-6)
    again = dyn.replay(state, action, KEY)
    np.testing.assert_allclose(feat[1, :, :16], again['deter'][:, 0], rtol=1e-6)


def test_the_policy_acts_on_the_features_that_are_returned_beside_its_actions():
    dyn = make()
    _, action, _ = inputs(length=1)
    act = {k: v[:, 0] for k, v in action.items()}
    seen = lambda feat, noise: ({**act, 'move': feat[:, : act['move'].shape[-1]]}, None)
    feat, acts, _ = dyn.imagine(carry(dyn), seen, 3, KEY)
    expected = feat[..., : act['move'].shape[-1]]
    np.testing.assert_allclose(acts['move'], expected, rtol=1e-6)
    assert (feat[1:] != feat[:-1]).any((1, 2)).all()


def test_large_actions_count_as_their_sign():
    dyn = make()
    tokens, action, is_first = inputs()
    big = {**action, 'move': jnp.sign(action['move']) * 1e6}
    one = {**action, 'move': jnp.sign(action['move'])}
    _, a = dyn.observe(carry(dyn), tokens, big, is_first, KEY)
    _, b = dyn.observe(carry(dyn), tokens, one, is_first, KEY)
    np.testing.assert_array_equal(a['deter'], b['deter'])


def test_free_nats_stop_the_gradient_of_small_divergences():
    for nats, moves in ((1000.0, False), (0.0, True)):
        dyn = make(free_nats=nats)
        tokens, action, is_first = inputs()

        def loss(tokens, dyn=dyn, action=action, is_first=is_first):
            _, states = dyn.observe(carry(dyn), tokens, action, is_first, KEY)
            losses, _ = dyn.loss(states)
            return sum(x.sum() for x in losses.values())

        grad = jax.grad(loss)(tokens)
        assert bool(jnp.abs(grad).max() > 0) == moves
        assert jnp.isfinite(grad).all()


def test_features_are_deter_then_stoch():
    state = {'deter': jnp.arange(2.0)[None], 'stoch': jnp.arange(2.0, 8).reshape(1, 2, 3)}
    np.testing.assert_array_equal(features(state), [np.arange(8)])


def test_bfloat16_states_stay_bfloat16():
    dyn = RSSM(KEY, ACT, 5, jnp.bfloat16, **SIZES)
    tokens, action, is_first = inputs()
    _, states = dyn.observe(dyn.initial(B), tokens.astype(jnp.bfloat16), action, is_first, KEY)
    assert states['deter'].dtype == states['stoch'].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    'changes', [{}, {'absolute': True}, {'obslayers': 0, 'dynlayers': 2}, {'norm': 'none'}]
)
def test_gradients_of_observing_are_those_of_a_plain_scan(changes, monkeypatch):
    dyn = make(**changes)
    tokens, action, is_first = inputs()

    @eqx.filter_grad
    def grad(args):
        dyn, state, tokens = args
        _, states = dyn.observe(state, tokens, action, is_first, KEY)
        weigh = lambda x: (x * jax.random.normal(KEY, x.shape)).sum()
        return sum(weigh(x) for x in states.values())

    found = grad((dyn, carry(dyn), tokens))
    plain = lambda step, cell, *args: jax.lax.scan(lambda s, x: step(cell, s, x), *args)
    monkeypatch.setattr(recurrence, 'scan', plain)
    expected = grad((dyn, carry(dyn), tokens))
    for mine, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        scale = max(1, np.abs(theirs).max())
        np.testing.assert_allclose(mine / scale, theirs / scale, rtol=0, atol=1e-5)
