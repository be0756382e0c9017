"""The Dreamer agent: policy, train and report, wired from their parts (paper, "Methods").

`Dreamer` is a set of pure functions of training state, carry, data and key; the runtime in
`embodied.jax` compiles them, keeps the state on the devices and feeds them. `Agent` joins
the two.

The carry holds, per sequence, the latent state and the action that came last.
"""

from collections.abc import Mapping
from typing import Any

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from embodied import UserError
from embodied.jax import concat, distributions, steps
from embodied.jax.heads import Head
from embodied.jax.normalize import Normalizer
from embodied.jax.optimizer import Optimizer, global_norm
from embodied.jax.runtime.runtime import Runtime
from embodied.jax.runtime.setup import compute_dtype, devices
from embodied.jax.slowmodel import SlowModel

from . import inference, latents, losses, openloop, reference
from .decoder import Decoder
from .encoder import Encoder, split_spaces
from .rssm import RSSM, features

f32 = jnp.float32
sg = jax.lax.stop_gradient
Carry = dict[str, Any]
POLICIES = {
    'policy_dist_disc': ('categorical',),
    'policy_dist_cont': ('bounded_normal', 'normal_logstd'),
}
DTYPES = {'bfloat16': jnp.bfloat16, 'float32': jnp.float32, 'float16': jnp.float16}


class Model(eqx.Module):
    """All that the optimizer trains: world model, actor and critic."""

    enc: Encoder
    dyn: RSSM
    dec: Decoder
    rew: Head
    con: Head
    pol: Head
    val: Head


class PolicyModel(eqx.Module):
    """The part of the model that acting needs."""

    enc: Encoder
    dyn: RSSM
    pol: Head


class TrainState(eqx.Module):
    """All that training changes."""

    model: Model
    slowval: SlowModel
    retnorm: Normalizer
    valnorm: Normalizer
    advnorm: Normalizer
    opt: Optimizer


class Dreamer:
    """The algorithm for given spaces and config (section `agent` of the configuration).

    `ext_space` names what a batch holds beside observations and actions.
    """

    def __init__(self, obs_space: Mapping[str, Any], act_space: Mapping[str, Any], config):
        self.obs_space, self.act_space, self.config = dict(obs_space), dict(act_space), config
        self.dtype = DTYPES[config.jax.compute_dtype]
        self.context = config.replay_context
        # Whether heads see imagined states step by step, which suits the caches of a CPU.
        self.stepwise = devices()[0].platform == 'cpu'
        rssm = config.dyn.rssm
        self.latents = latents.Latents(rssm.deter, rssm.stoch, rssm.classes, self.dtype)
        self.ext_space = {
            'consec': elements.Space(np.int32),
            'stepid': elements.Space(np.uint8, 20),
        }
        if self.context:
            self.ext_space |= self.latents.spaces
        vectors, images = split_spaces(self.obs_space)
        self.images = tuple(images)
        self.checks = ('token', 'deter', 'stoch', *sorted(self.act_space))
        scales = dict(config.loss_scales)
        rec = scales.pop('rec')
        taken = {*self.ext_space, *self.latents.spaces, *scales}
        _check_keys(self.obs_space, self.act_space, taken)
        self.scales = {**dict.fromkeys([*vectors, *images], rec), **scales}

    def init(self, key: PRNGKeyArray) -> TrainState:
        """Fresh training state."""
        config, dtype = self.config, self.dtype
        keys = dict(zip(Model.__dataclass_fields__, jax.random.split(key, 7), strict=True))
        enc = Encoder(keys['enc'], self.obs_space, dtype, **config.enc.simple)
        dyn = RSSM(keys['dyn'], self.act_space, enc.width, dtype, **config.dyn.rssm)
        dec = Decoder(keys['dec'], self.obs_space, dyn.sizes, **config.dec.simple)
        deter, stoch, classes = dyn.sizes
        feat = deter + stoch * classes
        rew, con, val = (
            _head(keys[name], feat, section)
            for name, section in (
                ('rew', config.rewhead), ('con', config.conhead), ('val', config.value),
            )
        )  # fmt: skip
        pol = self._policy_head(keys['pol'], feat)
        model = Model(enc, dyn, dec, rew, con, pol, val)
        float16 = self.dtype == jnp.float16
        return TrainState(
            model,
            SlowModel(val, **config.slowvalue),
            *(Normalizer(**config[name]) for name in ('retnorm', 'valnorm', 'advnorm')),
            Optimizer(model, **config.opt, loss_scaling=float16),
        )

    def policy_view(self, state: TrainState) -> PolicyModel:
        """What the policy reads of the training state."""
        return PolicyModel(state.model.enc, state.model.dyn, state.model.pol)

    def init_policy(self, batch: int) -> Carry:
        """Carry of `batch` environments before their first step."""
        dims = self.config.dyn.rssm
        return {
            'deter': jnp.zeros((batch, dims.deter), self.dtype),
            'stoch': jnp.zeros((batch, dims.stoch, dims.classes), self.dtype),
            'prevact': {
                key: jnp.zeros((batch, *space.shape), space.dtype)
                for key, space in self.act_space.items()
            },
        }

    init_train = init_report = init_policy

    def policy(
        self, model: PolicyModel, carry: Carry, obs: Mapping[str, Array], key: PRNGKeyArray
    ) -> tuple[Carry, dict[str, Array], dict[str, Array], Array]:
        """One step of acting for a batch of environments.

        Returns the carry, the actions, the latents for the replay, and for each name in
        `checks` whether all its entries are finite.
        """
        token, prevact = model.enc(obs), carry['prevact']
        stoch = model.dyn.sizes[1]
        numbers = stoch + concat.variables(self.act_space)
        noise = distributions.draws.uniform(key, (len(token), numbers))
        state = model.dyn.observe_step(
            _state(carry), token, prevact, obs['is_first'], noise[:, :stoch]
        )
        act = self._select(model.pol(features(state)), noise[:, stoch:])
        act = {k: v.astype(self.act_space[k].dtype) for k, v in act.items()}
        outputs = [token, state['deter'], state['stoch'], *(act[k] for k in sorted(act))]
        finite = jnp.stack([jnp.isfinite(x).all() for x in outputs])  # as named by `checks`
        out = self.latents.encode(state) if self.context else {}
        return {**state, 'prevact': act}, act, out, finite

    def train(
        self, state: TrainState, carry: Carry, data: Mapping[str, Array], key: PRNGKeyArray
    ) -> tuple[TrainState, Carry, dict[str, Any], dict[str, Array]]:
        """One update. Returns state, carry, what goes back to the replay, and metrics."""
        carry, obs, prevact = self._split(carry, data)

        def lossfn(model):
            state_ = eqx.tree_at(lambda s: s.model, state, model)
            return self.loss(state_, carry, obs, prevact, key, update=True)

        opt, model, _, aux, optmetrics = state.opt.update(lossfn, state.model)
        states, norms, terms, metrics = aux
        slowval = state.slowval.update(model.val)
        if opt.scaling:  # an overflow changes nothing but the scale
            old = (state.slowval, {k: getattr(state, k) for k in norms})
            pick = lambda a, b: jnp.where(opt.step > state.opt.step, a, b)
            slowval, norms = jax.tree.map(pick, (slowval, norms), old)
        state = TrainState(model, slowval, **norms, opt=opt)
        metrics |= {f'opt/{k}': v for k, v in optmetrics.items()}
        replay = {'stepid': data['stepid'][:, self.context :]}
        if self.context:
            replay |= self.latents.encode(states)
        if self.config.replay_priority:
            replay['priority'] = self._priority(terms)
        return state, self._carry_on(states, data), {'replay': replay}, metrics

    def report(
        self, state: TrainState, carry: Carry, data: Mapping[str, Array], key: PRNGKeyArray
    ) -> tuple[Carry, dict[str, Array]]:
        """Losses without an update, gradient norms on request, and open-loop videos.

        Nothing with `report` off.
        """
        if not self.config.report:
            return carry, {}
        start, obs, prevact = self._split(carry, data)
        loss_key, video_key = jax.random.split(key)
        _, (states, _, _, metrics) = self.loss(
            state, start, obs, prevact, loss_key, update=False
        )
        if self.config.report_gradnorms:
            metrics |= self._gradnorms(state, start, obs, prevact, loss_key)
        if self.images:
            metrics |= openloop.videos(
                state.model.dyn, state.model.dec, start, states, obs, prevact, video_key
            )
        return self._carry_on(states, data), metrics

    def loss(
        self, state: TrainState, start: Carry, obs: Mapping[str, Array],
        prevact: Mapping[str, Array], key: PRNGKeyArray, update: bool,
    ) -> tuple[Array, tuple]:  # fmt: skip
        """Total loss, and (states, normalisers, loss terms by key, metrics).

        Terms are (B, T), those of the policy and the value (B, K).
        """
        obs_key, img_key = jax.random.split(key)
        states, terms, metrics = self._world_model_loss(
            state.model, start, obs, prevact, obs_key
        )
        acting, norms, more = self._actor_critic_loss(state, states, obs, img_key, update)
        terms |= acting
        metrics |= more | losses.named_losses(terms)
        total = sum(self.scales[k] * term.mean() for k, term in terms.items())
        return total, (states, norms, terms, metrics)

    def _world_model_loss(self, model, start, obs, prevact, key):
        tokens = model.enc(obs)
        _, states = model.dyn.observe(_state(start), tokens, prevact, obs['is_first'], key)
        terms, entropies = model.dyn.loss(states)
        terms |= model.dec.loss(states, obs)
        feat = features(states)
        reward = model.rew(feat if self.config.reward_grad else sg(feat))
        terms['rew'] = reward.loss(obs['reward'])
        target = 1 - obs['is_terminal'].astype(f32)
        if self.config.contdisc:
            target *= 1 - 1 / self.config.horizon
        terms['con'] = model.con(feat).loss(target)
        return states, terms, {k: v.mean() for k, v in entropies.items()}

    def _actor_critic_loss(self, state, states, obs, key, update):
        config, model, slow = self.config, state.model, state.slowval.copy
        batch, length = obs['is_first'].shape
        last = min(config.imag_last or length, length)
        tail = jax.tree.map(lambda x: x[:, -last:], {k: states[k] for k in ('deter', 'stoch')})
        starts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tail)
        feat, act, predicted = self._imagine(model, slow, starts, key)
        logp, entropies, value = self._evaluate(model, feat, act)
        norms = {k: getattr(state, k) for k in ('retnorm', 'valnorm', 'advnorm')}
        terms, ret, norms, metrics = losses.imag_loss(
            logp, entropies, value, *predicted, norms, update=update,
            contdisc=config.contdisc, horizon=config.horizon, **config.imag_loss,
        )  # fmt: skip
        metrics |= losses.entropy_metrics(metrics, model.pol(feat[0, :1]))
        terms = {k: v.mean(0).reshape(batch, last) for k, v in terms.items()}
        if config.repval_loss and last > 1:  # a return needs the step after
            feat = features(tail).swapaxes(0, 1)
            feat = feat if config.repval_grad else sg(feat)
            flags = (
                obs[k][:, -last:].astype(f32).T for k in ('is_last', 'is_terminal', 'reward')
            )
            boot = ret[0].reshape(batch, last).T
            repval, norms['valnorm'] = losses.repl_loss(
                *flags, boot, model.val(feat), slow(feat).pred(), norms['valnorm'],
                update=update, horizon=config.horizon, lam=config.repl_loss.lam,
                slowreg=config.repl_loss.slowreg,
            )  # fmt: skip
            terms['repval'] = repval.T
        return terms, norms, metrics

    def _imagine(self, model, slow, starts, key):
        """From N start states, features (H+1, N, …), actions (H+1, N, …), and reward,
        continuation and slow value (H+1, N) of all states. Without gradients, but into the
        features of the start (`ac_grads`).
        """
        # Nothing is learned through the rollout itself, so nothing of it is kept for a
        # backward pass.
        model, slow = _frozen((model, slow))

        def predict(feat):
            return model.rew(feat).pred(), model.con(feat).prob(), slow(feat).pred()

        def visit(feat, noise):  # on a CPU, predict while the features are in its caches
            act = self._select(model.pol(feat), noise)
            return act, predict(feat) if self.stepwise else None

        length = self.config.imag_length
        feat, act, predicted = model.dyn.imagine(sg(starts), visit, length, key)
        if not self.stepwise:
            predicted = predict(feat)
        if self.config.ac_grads:
            feat = feat.at[0].set(features(starts))
        return feat, act, predicted

    def _evaluate(self, model, feat, act):
        """What actor and critic make of imagined features (H+1, N, …) and actions.

        Returns the log-probability of the actions (H+1, N), the entropy (H+1, N) by action,
        and the critic's distribution.
        """

        def evaluate(feat, act):
            policy = model.pol(feat)
            logp = sum(dist.logp(sg(act[key])) for key, dist in policy.items())
            entropies = {key: dist.entropy() for key, dist in policy.items()}
            return logp, entropies, model.val.parameters(feat)

        *policy, value = steps.map_over_time(
            evaluate, feat, act, stepwise=self.stepwise, remat=self.config.jax.remat,
        )  # fmt: skip
        return *policy, model.val.distribution(value)

    def _select(self, dists: Mapping[str, Any], noise: Array) -> dict[str, Array]:
        """The action that uniform numbers select, one for each of its variables."""
        return {k: dists[k].select(v) for k, v in concat.cut(self.act_space, noise).items()}

    def _gradnorms(self, state, start, obs, prevact, key):
        """Norm of the gradient of each scaled loss term, by key."""
        trained, static = eqx.partition(state.model, eqx.is_array)

        def terms(trained):
            state_ = eqx.tree_at(lambda s: s.model, state, eqx.combine(trained, static))
            _, aux = self.loss(state_, start, obs, prevact, key, update=False)
            return {k: self.scales[k] * term.mean() for k, term in aux[2].items()}

        _, pullback = jax.vjp(terms, trained)
        names, norms = jax.eval_shape(terms, trained).keys(), {}
        for name in names:
            seed = {k: jnp.array(float(k == name)) for k in names}
            norms[f'gradnorm/{name}'] = global_norm(pullback(seed)[0])
        return norms

    def _split(self, carry: Carry, data: Mapping[str, Array]):
        """Start of a batch, its observations, and the action before each of its steps.

        With replay context, fresh sequences start from the stored latent of the last
        context step and consecutive ones from the carry.
        """
        first = self.context
        obs = {k: data[k][:, first:] for k in self.obs_space}
        if not first:
            join = lambda prev, act: jnp.concatenate([prev[:, None], act[:, :-1]], 1)
            prevact = {k: join(carry['prevact'][k], data[k]) for k in self.act_space}
            return carry, obs, prevact
        prevact = {k: data[k][:, first - 1 : -1] for k in self.act_space}
        stored = self.latents.decode({k: data[k][:, first - 1] for k in self.latents.spaces})
        fresh = data['consec'][:, 0] == 0
        pick = lambda a, b: jnp.where(fresh.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
        return {**carry, **jax.tree.map(pick, stored, _state(carry))}, obs, prevact

    def _carry_on(self, states, data) -> Carry:
        last = {k: states[k][:, -1] for k in ('deter', 'stoch')}
        return {**last, 'prevact': {k: data[k][:, -1] for k in self.act_space}}

    def _priority(self, terms: Mapping[str, Array]) -> Array:
        acting = ('policy', 'value', 'repval')
        return sum(self.scales[k] * v for k, v in terms.items() if k not in acting)

    def _policy_head(self, key, feat: int) -> Head:
        config = self.config
        shared = {k: config.policy[k] for k in ('minstd', 'maxstd', 'outscale', 'unimix')}
        outputs = {}
        for name, space in self.act_space.items():
            if space.discrete and space.dtype != bool and np.any(space.low != 0):
                raise UserError(
                    f'Action {name!r} begins at {np.min(space.low)}, but discrete actions '
                    'count from 0; shift them in the environment'
                )
            flag = 'policy_dist_disc' if space.discrete else 'policy_dist_cont'
            kind = config[flag]
            if kind not in POLICIES[flag]:
                raise UserError(
                    f'--agent.{flag} {kind} does not give actions for {name!r}, expected '
                    f'{" or ".join(POLICIES[flag])}'
                )
            classes = concat.classes(space) if space.discrete else 0
            outputs[name] = dict(shape=space.shape, kind=kind, classes=classes, **shared)
        mlp = {k: config.policy[k] for k in ('layers', 'units', 'act', 'norm', 'winit')}
        return Head(key, feat, outputs, **mlp)


class Agent(Runtime):
    """Dreamer on devices: the agent that run loops use. See `embodied.Agent`.

    from_reference: turns the data of an agent of the reference into those that `load` takes.
    """

    from_reference = staticmethod(reference.convert)

    def __init__(self, obs_space, act_space, config):
        dtype = compute_dtype(config.jax.compute_dtype)
        config = config.update({'jax.compute_dtype': dtype})
        dreamer = Dreamer(obs_space, act_space, config)
        super().__init__(dreamer, config)

    def save(self) -> dict:
        """Parameters and counters, with what it takes to build the agent without its run."""
        about = inference.describe(self.obs_space, self.act_space, self.config)
        return {**super().save(), **about}

    def load(self, data: dict, regex: str | None = None) -> None:
        """Take over what `save` gave, see `Runtime.load`. UserError for other spaces."""
        found = inference.differences(data, self.obs_space, self.act_space)
        if found and regex is None:
            more = f' (and {len(found) - 3} more)' if len(found) > 3 else ''
            raise UserError(
                f'The agent was trained in another environment: {"; ".join(found[:3])}{more}. '
                'Take its task and options (--task, --env), or only a part of it '
                '(--run.from_checkpoint_regex).'
            )
        super().load(data, regex)

    def report(self, carry: Any, data: dict) -> tuple[Any, dict]:
        """Metrics of a batch, with names in the open-loop videos."""
        carry, metrics = super().report(carry, data)
        videos = {k: openloop.label(v) for k, v in metrics.items() if k.startswith('openloop/')}
        return carry, metrics | videos

    def describe(self) -> str:
        """What a user checks first: devices, keys, and parameters by module."""
        devices = ', '.join(
            f'{name} on {mesh.devices.size} x {mesh.devices.flat[0].device_kind}'
            for name, mesh in (('policy', self.policy_mesh), ('training', self.train_mesh))
        )
        keys = ', '.join(k for spaces in split_spaces(self.obs_space) for k in spaces)
        counts = self.param_counts()
        modules = ', '.join(f'{name} {count:,}' for name, count in counts.items())
        return (
            f'devices: {devices} ({self.config.jax.compute_dtype})\n'
            f'encoded and decoded: {keys}\n'
            f'actions: {", ".join(sorted(self.act_space))}\n'
            f'parameters: {sum(counts.values()):,} ({modules})'
        )


def _check_keys(obs_space, act_space, taken: set[str]) -> None:
    """Refuse names that would hide each other in a batch or among the losses."""
    clash = obs_space.keys() & (act_space.keys() | taken) | act_space.keys() & taken
    if clash:
        raise UserError(
            f'The environment uses {sorted(clash)} for an observation or action, which is also '
            'an action, a loss or an entry of the replay; rename it in the environment'
        )


def _head(key, feat: int, section) -> Head:
    """Scalar head from its section of the configuration."""
    mlp = {k: section[k] for k in ('layers', 'units', 'act', 'norm', 'winit')}
    output = {k: v for k, v in section.items() if k in ('outscale', 'bins')}
    return Head(key, feat, dict(shape=(), kind=section.output, **output), **mlp)


def _frozen(tree: Any) -> Any:
    return jax.tree.map(lambda x: sg(x) if eqx.is_array(x) else x, tree)


def _state(carry: Carry) -> dict[str, Array]:
    return {k: carry[k] for k in ('deter', 'stoch')}
