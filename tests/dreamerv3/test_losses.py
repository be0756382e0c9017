"""Returns and losses by hand-computed numbers, slow loops and identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import losses
from embodied.jax import distributions
from embodied.jax.normalize import Normalizer

GAMMA = 1 - 1 / 333
REW = jnp.array([[0.0, 1, 0, 2]]).T
BOOT = jnp.full((4, 1), 10.0)
NONE = jnp.zeros((4, 1))
STEP2 = jnp.array([[0.0, 0, 1, 0]]).T


@pytest.mark.parametrize(
    ('last', 'term', 'expected'),
    [
        (NONE, NONE, [12.708763, 11.835821, 11.969970]),
        (STEP2, STEP2, [1.498498, 0.0, 11.969970]),
        (STEP2, NONE, [10.941527, 9.969970, 11.969970]),
    ],
)
def test_lambda_return_by_hand(last, term, expected):
    ret = losses.lambda_return(last, term, REW, BOOT, GAMMA, 0.95)
    np.testing.assert_allclose(ret[:, 0], expected, atol=1e-5)


def slow_return(last, term, rew, boot, disc, lam):
    ret = np.zeros(len(rew) - 1)
    nxt = boot[-1]
    for t in reversed(range(len(rew) - 1)):
        live = (1 - term[t + 1]) * disc
        cont = (1 - last[t + 1]) * lam
        nxt = rew[t + 1] + (1 - cont) * live * boot[t + 1] + live * cont * nxt
        ret[t] = nxt
    return ret


def test_lambda_return_against_a_loop():
    rng = np.random.default_rng(0)
    last, term = (rng.random((9, 3)) < 0.2).astype(np.float32), rng.random((9, 3))
    rew, boot = rng.normal(size=(2, 9, 3))
    args = [np.float32(x) for x in (last, term, rew, boot)]
    ret = jax.jit(losses.lambda_return, static_argnums=(4, 5))(*args, 0.99, 0.9)
    for i in range(3):
        expected = slow_return(*(np.float64(x[:, i]) for x in args), 0.99, 0.9)
        np.testing.assert_allclose(ret[:, i], expected, rtol=1e-5, atol=1e-6)


def test_lambda_one_sums_rewards_and_lambda_zero_looks_one_step_ahead():
    rng = np.random.default_rng(1)
    rew, boot = jnp.asarray(rng.normal(size=(2, 4, 1)), jnp.float32)
    full = losses.lambda_return(NONE, NONE, rew, boot, 1.0, 1.0)
    np.testing.assert_allclose(full[0], rew[1:].sum(0) + boot[-1], rtol=1e-5)
    short = losses.lambda_return(NONE, NONE, rew, boot, 0.9, 0.0)
    np.testing.assert_allclose(short, rew[1:] + 0.9 * boot[1:], rtol=1e-5)


def test_lambda_return_refuses_other_shapes():
    with pytest.raises((ValueError, TypeError), match=r'one shape|Expected type'):
        losses.lambda_return(NONE, NONE, REW[1:], BOOT, 0.9, 0.9)


def test_critic_loss_by_hand():
    """A squared error in place of a cross-entropy, with the slow critic at half its weight."""
    value = distributions.MSE(jnp.array([[1.0], [4], [9]]))
    loss = losses.critic_loss(value, jnp.array([[1.0], [5], [7]]), jnp.array([[2.0], [2]]), 0.5)
    np.testing.assert_allclose(loss[:, 0], [1 + 0, 4 + 0.5])


def test_advantage_by_hand():
    retnorm = Normalizer('perc', limit=1.0)
    rets = [
        retnorm,
        retnorm.update(jnp.array([0.0, 10])),
        retnorm.update(jnp.array([0.0, 0.1])),
    ]
    found = [losses.advantage(jnp.array([[5.0]]), jnp.array([[2.0]]), x)[0, 0] for x in rets]
    # Nothing seen, a range of 10 whose 5th and 95th percentile lie 9 apart, and a small range.
    np.testing.assert_allclose(found, [3, 3 / 9, 3], rtol=1e-6)


def test_actor_loss_by_hand():
    logp, entropy = jnp.array([[-1.0], [-2]]), jnp.array([[0.5], [1]])
    adv = jnp.array([[3.0], [-1]])
    loss = losses.actor_loss(logp, entropy, adv, 0.1)
    np.testing.assert_allclose(loss[:, 0], [3 - 0.05, -2 - 0.1], rtol=1e-6)
    of_logp, of_entropy, of_adv = jax.grad(
        lambda *args: losses.actor_loss(*args, 0.1).sum(), (0, 1, 2)
    )(logp, entropy, adv)
    np.testing.assert_allclose(of_logp, -adv)
    np.testing.assert_allclose(of_entropy, jnp.full((2, 1), -0.1))
    np.testing.assert_array_equal(of_adv, 0)


def twohot(values):
    """Value distributions that predict these values."""
    bins = distributions.symexp_bins(255)
    weights = distributions.twohot(values, bins)
    return distributions.TwoHot(jnp.log(weights + 1e-20), bins)


def imagine(**changes):
    """imag_loss on fixed small inputs; returns it and the gradients of each input."""
    key = jax.random.key(0)
    inputs = dict(
        logits=jax.random.normal(key, (2, 4, 3)).swapaxes(0, 1),
        value=jnp.log(distributions.twohot(jnp.arange(8.0).reshape(2, 4).T,
                                           distributions.symexp_bins(255)) + 1e-6),
        rew=jnp.ones((4, 2)), con=jnp.full((4, 2), 0.9),
    ) | changes  # fmt: skip
    norms = {
        'retnorm': Normalizer('perc', limit=1.0, debias=False),
        'valnorm': Normalizer('none'), 'advnorm': Normalizer('none'),
    }  # fmt: skip
    act = jnp.array([[0, 1, 2, 0], [1, 1, 0, 2]]).T

    def run(x, which):
        bins = distributions.symexp_bins(255)
        value = distributions.TwoHot(x['value'], bins)
        policy = distributions.Categorical(x['logits'])
        out, ret, _, metrics = losses.imag_loss(
            policy.logp(act), {'action': policy.entropy()}, value, x['rew'], x['con'],
            value.pred(), norms, update=True, contdisc=True, horizon=333, slowtar=False,
            lam=0.95, actent=3e-4, slowreg=1.0,
        )  # fmt: skip
        return out[which].sum(), (out, ret, metrics)

    grads = {w: jax.grad(run, has_aux=True)(inputs, w)[0] for w in ('policy', 'value')}
    return *run(inputs, 'policy')[1], grads


def test_only_the_policy_learns_from_the_policy_loss_and_only_the_value_from_its_own():
    _, _, _, grads = imagine()
    for name in ('value', 'rew', 'con'):
        np.testing.assert_array_equal(grads['policy'][name], 0)
    for name in ('logits', 'rew', 'con'):
        np.testing.assert_array_equal(grads['value'][name], 0)
    assert jnp.abs(grads['policy']['logits']).max() > 0
    assert jnp.abs(grads['value']['value']).max() > 0
    # The action of the last step has no return yet.
    np.testing.assert_array_equal(grads['policy']['logits'][-1], 0)


def test_steps_after_the_end_of_an_imagined_episode_weigh_nothing():
    con = jnp.array([[0.9, 0.0, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9]]).T
    out, _, _, grads = imagine(con=con)
    np.testing.assert_array_equal(out['policy'][1:, 0], 0)
    np.testing.assert_array_equal(out['value'][1:, 0], 0)
    np.testing.assert_array_equal(grads['policy']['logits'][1:, 0], 0)
    assert (out['value'][:, 1] > 0).all()


def test_an_action_with_a_higher_return_becomes_more_probable():
    _, _, _, grads = imagine(rew=jnp.array([[0.0, 50, 0, 0], [0, -50, 0, 0]]).T)
    # The gradient of the loss falls along what is to be made more probable.
    assert grads['policy']['logits'][0, 0, 0] < 0
    assert grads['policy']['logits'][0, 1, 1] > 0


def test_extreme_targets_give_finite_losses():
    out, ret, metrics, grads = imagine(rew=jnp.array([[0.0, 1e6, -1e6, 1e6]] * 2).T)
    for tree in (out, ret, metrics, grads):
        assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(tree))


def test_replay_value_loss_leaves_out_last_steps_and_is_least_at_the_return():
    valnorm = Normalizer('none')
    ret = losses.lambda_return(NONE, NONE, REW, BOOT, GAMMA, 0.95)
    right = jnp.concatenate([ret, jnp.zeros((1, 1))])
    opts = dict(update=True, horizon=333, lam=0.95, slowreg=0.0)
    loss = lambda value, last: losses.repl_loss(
        last, NONE, REW, BOOT, twohot(value), value, valnorm, **opts
    )[0]
    assert loss(right, NONE).shape == (3, 1)
    assert loss(right, NONE).sum() < loss(right + 0.5, NONE).sum()
    assert loss(right, NONE).sum() < loss(right - 0.5, NONE).sum()
    np.testing.assert_array_equal(loss(right, STEP2)[2, 0], 0)
