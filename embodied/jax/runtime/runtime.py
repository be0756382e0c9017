"""Runs a set of pure functions as an agent: keeps its state on the devices, compiles its
steps, feeds batches, copies parameters from the learner to the policy, saves and loads.

The functions come as an object with obs_space, act_space, ext_space and `checks`; init(key),
policy_view(state), init_policy / init_train / init_report(batch), policy(view, carry, obs,
key), train(state, carry, data, key) and report(state, carry, data, key). The policy also
returns which of the outputs named by `checks` are finite. The state is a tree of modules;
outside of compiled steps it is the flat dict of `names`.
"""

import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from embodied.core.base import Agent, Stream
from embodied.core.errors import NotFinite, UserError, reason

from .. import packing
from . import compiler, loading, names, settings, sharding
from .feed import Batch, DeviceFeed
from .setup import pick
from .step_cache import StepCache, sources

Flat = dict[str, jax.Array]
# Keys that change nothing in what is compiled; the seed is an argument.
UNTRACED = (
    'logdir', 'seed', 'replica', 'replicas', 'jax.compilation_cache', 'jax.precompile',
)  # fmt: skip

PURPOSES = ('init', 'policy', 'train', 'report', 'eval')  # of random numbers, each its own


class Runtime(Agent):
    """An `embodied.Agent` of pure functions.

    `config` holds seed, batch_size, batch_length, report_length, replay_context and the
    section jax. Carries and states stay on the
    devices; actions, outputs and metrics come back as numpy.
    """

    def __init__(self, model: Any, config: Any):
        super().__init__(model.obs_space, model.act_space, config)
        self.model = model
        self.spaces = {**model.obs_space, **model.act_space, **model.ext_space}
        jaxcfg = config.jax
        train = pick(jaxcfg.train_devices, 'jax.train_devices')
        policy = pick(jaxcfg.policy_devices, 'jax.policy_devices')
        self.train_mesh = sharding.make_mesh(train, jaxcfg.train_mesh, 'jax.train_mesh')
        self.policy_mesh = sharding.make_mesh(policy, jaxcfg.policy_mesh, 'jax.policy_mesh')
        ways = sharding.parts(self.train_mesh)
        if config.batch_size % ways:
            raise UserError(
                f'--batch_size {config.batch_size} does not divide over {ways} devices '
                '(--jax.train_devices, --jax.train_mesh)'
            )
        self.counters = {'updates': 0, 'batches': 0, 'actions': 0, 'evals': 0}
        self.lock = threading.Lock()  # counters
        self.learning = threading.RLock()  # the training state, which an update gives away
        with guarded():
            self.template = eqx.filter_eval_shape(lambda: model.init(jax.random.key(0)))
            key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
        self.view_template = model.policy_view(self.template)
        self.view_names = tuple(names.flatten(self.view_template))
        self._shapes = names.flatten(self.template)
        self._packed = packing.layouts(self.template)
        (self._words,) = key.shape
        self._keys = {x: _mix(config.seed, x, self._words) for x in PURPOSES}
        self._begun: dict[tuple, Future] = {}  # what is compiled, or being compiled
        self._tracing = threading.RLock()
        with guarded():
            self._step_cache = self._open_step_cache()
        self._copy = jax.jit(
            lambda flat: {k: jnp.copy(v) for k, v in flat.items()},
            out_shardings=sharding.replicated(self.train_mesh),
        )
        self._state: Flat | None = None
        self._view: Flat = {}

    @property
    def state(self) -> Flat:
        """The training state by name, made when it is first asked for unless it was loaded."""
        with self.learning, guarded():
            if self._state is None:
                self._state = self._step('init')(self._seeds(0, 'init'))
            return self._state

    @property
    def view(self) -> Flat:
        """The parameters that the policy acts with; none with --jax.enable_policy False."""
        if not self._view:
            with self.learning, guarded():
                self._sync()
        return self._view

    # ---- acting

    def init_policy(self, batch: int) -> Any:
        """Carry of `batch` environments before their first step; compiles the policy."""
        self._check_acting()
        self._step('policy', batch)
        with guarded():
            return jax.device_put(
                self.model.init_policy(batch), sharding.batch_sharding(self.policy_mesh, batch)
            )

    def policy(self, carry: Any, obs: dict, mode: str = 'train') -> tuple[Any, dict, dict]:
        """Act for a batch of observations. The mode changes nothing in the distribution.

        Draws of evaluation have a count of their own, so that it changes nothing in training.

        Raises NotFinite naming the first output that is not finite.
        """
        step = self._step('policy', len(obs['is_first']))
        return self._act(step, (carry,), obs, mode)

    def init_table(self, capacity: int) -> Any:
        """States of `capacity` environments before their first step, for `policy_ids`."""
        self._check_acting()
        with guarded():
            table = self.model.init_policy(capacity)
            return jax.device_put(table, sharding.replicated(self.policy_mesh))

    def policy_ids(
        self, table: Any, ids: np.ndarray, obs: dict, mode: str = 'train'
    ) -> tuple[Any, dict, dict]:
        """Act for the environments `ids` (n,), int32, whose states are rows of the table.

        The states stay on the device; the table passed is given up to this call, and the new
        one is returned with act and out, see `policy`. Where an id comes twice, which of its
        states is kept is not said.
        """
        capacity = len(jax.tree.leaves(table)[0])
        step = self._step('policy_ids', len(ids), capacity)
        return self._act(step, (table, np.asarray(ids, np.int32)), obs, mode)

    def _check_acting(self) -> None:
        if not self.config.jax.enable_policy:
            raise UserError('This process does not act (--jax.enable_policy False)')

    def _act(self, step: Any, carry: tuple, obs: dict, mode: str) -> tuple[Any, dict, dict]:
        purpose, name = ('eval', 'evals') if mode == 'eval' else ('policy', 'actions')
        obs = {k: obs[k] for k in self.obs_space}
        with self.lock:
            count = self.counters[name]
            self.counters[name] += 1
        view = self.view
        with guarded():
            # The step takes numpy where it runs, in less time than a transfer of its own.
            state, *rest = step(view, *carry, obs, self._seeds(count, purpose))
            for leaf in jax.tree.leaves(rest):
                leaf.copy_to_host_async()
            act, out, finite = jax.tree.map(np.asarray, rest)
        if not finite.all():
            name = self.model.checks[int(np.argmin(finite))]
            raise NotFinite(f'Policy output {name!r} is not finite')
        return state, act, out

    # ---- learning

    def init_train(self, batch: int) -> Any:
        """Carry of `batch` sequences before their first batch.

        Begins to compile the update, and with --jax.precompile the report; the first one waits
        for it.
        """
        context, jaxcfg = self.config.replay_context, self.config.jax
        steps = [('train', batch, self.config.batch_length + context)]
        if jaxcfg.precompile:
            steps.append(('report', batch, self.config.report_length + context))
        self._begin(steps)
        with guarded():
            return jax.device_put(
                self.model.init_train(batch), sharding.split_batch(self.train_mesh)
            )

    def ready(self) -> bool:
        """Whether all that `init_train` began for an update is there."""
        steps = list(self._begun.items())
        return all(step.done() for (name, *_), step in steps if name in ('init', 'train'))

    def init_report(self, batch: int) -> Any:
        """Carry of `batch` sequences for reports, which compile when they are first used."""
        with guarded():
            return jax.device_put(
                self.model.init_report(batch), sharding.split_batch(self.train_mesh)
            )

    def train(self, carry: Any, data: dict) -> tuple[Any, dict, dict]:
        """One update on a batch of `stream`, or of numpy arrays (B, T, …).

        While the devices work, the stream fetches its next batch.
        """
        meanwhile = data.meanwhile if isinstance(data, Batch) else None
        data = self.put(data)
        step = self._step('train', *data['is_first'].shape)
        with self.learning, guarded():
            seeds = self._seeds(self.counters['batches'], 'train')
            self.counters['batches'] += 1
            self._state, carry, out, metrics = step(self.state, carry, data, seeds)
            self.counters['updates'] += 1
            if meanwhile:
                meanwhile()
            out, metrics = jax.device_get((out, metrics))
            # Not before the update is done: an actor in another thread would wait for it.
            self._sync()
        return carry, out, metrics

    def report(self, carry: Any, data: dict) -> tuple[Any, dict]:
        """Metrics of a batch. Changes neither the state nor the randomness of training."""
        data = self.put(data)
        step = self._step('report', *data['is_first'].shape)
        with self.learning, guarded():
            seeds = self._seeds(self.counters['batches'], 'report')
            carry, metrics = step(self.state, carry, data, seeds)
            return carry, jax.device_get(metrics)

    def stream(self, stream: Stream) -> Stream:
        """The stream with its batches on the training devices, one batch ahead."""
        return DeviceFeed(stream, self.put)

    def put(self, data: dict) -> dict[str, jax.Array]:
        """A batch on the training devices; keys that are in no space are left out."""
        missing = [k for k in self.spaces if k not in data]
        if missing:
            raise KeyError(f'A batch lacks {missing}; it holds {sorted(data)}')
        data = {k: data[k] for k in self.spaces}
        with guarded():
            return jax.device_put(data, sharding.split_batch(self.train_mesh))

    # ---- checkpoints

    def save(self) -> dict:
        """Arrays of the state by name, and counters."""
        with self.learning, guarded():
            return {'params': self._arrays(), 'counters': dict(self.counters)}

    def load(self, data: dict, regex: str | None = None) -> None:
        """Take over the arrays of `save`; all of them, or only names that match `regex`.

        With a regex the rest keeps its values, the counters stay, and the names that matched,
        that are new here and that were dropped are printed. Raises UserError with the names
        and shapes that differ.
        """
        shapes = {k: np.broadcast_to(np.float32(0), v.shape) for k, v in self._shapes.items()}
        params, own = data['params'], packing.apart(shapes, self._packed)
        if regex is not None:
            params = loading.select(params, own, regex)
        loading.check_fit(params, own, strict=regex is None)
        with self.learning, guarded():
            if regex is not None:
                params = {**self._arrays(), **params}
            params = packing.joined(params, self._packed)
            place = sharding.replicated(self.train_mesh)
            loaded = {
                k: jax.device_put(np.asarray(params[k], v.dtype), place)
                for k, v in self._shapes.items()
            }
            # A buffer that the host still holds must not be donated to a training step.
            self._state = self._copy(loaded)
            if regex is None:
                found = data['counters']  # the reference counts no evals
                self.counters = {k: int(found.get(k, 0)) for k in self.counters}
            self._sync()

    def _arrays(self) -> dict[str, np.ndarray]:
        """Copies of all arrays by name: the next update gives up the buffers themselves."""
        return packing.apart({k: np.array(v) for k, v in self.state.items()}, self._packed)

    def param_counts(self) -> dict[str, int]:
        """Number of trained parameters by module."""
        counts: dict[str, int] = {}
        for name, array in names.flatten(self.template.model).items():
            module = name.split('/')[0]
            counts[module] = counts.get(module, 0) + int(np.prod(array.shape))
        return counts

    # ---- the pure functions between flat dicts

    def _policy(self, flat, carry, obs, seeds):
        view = names.unflatten(self.view_template, flat)
        return self.model.policy(view, carry, obs, jax.random.wrap_key_data(seeds))

    def _policy_ids(self, flat, table, ids, obs, seeds):
        carry = jax.tree.map(lambda x: x[ids], table)
        carry, *rest = self._policy(flat, carry, obs, seeds)
        return jax.tree.map(lambda old, new: old.at[ids].set(new), table, carry), *rest

    def _train(self, flat, carry, data, seeds):
        state = names.unflatten(self.template, flat)
        key = jax.random.wrap_key_data(seeds)
        state, carry, out, metrics = self.model.train(state, carry, data, key)
        return names.flatten(state), carry, out, metrics

    def _report(self, flat, carry, data, seeds):
        state = names.unflatten(self.template, flat)
        return self.model.report(state, carry, data, jax.random.wrap_key_data(seeds))

    def _step(self, name: str, batch: int = 0, length: int = 0) -> Any:
        """The compiled policy, train or report for batches of this size, or init; made once.

        length: of sequences, or the capacity of a table of states.
        """
        key = name, batch, length
        if key not in self._begun:
            self._begin([key])
        step = self._begun[key]
        if step.done() and not step.exception():
            return step.result()
        try:
            with guarded():
                return compiler.wait(step)
        except Exception:
            self._begun.pop(key, None)  # to be tried again
            raise

    def _begin(self, steps: list[tuple[str, int, int]]) -> None:
        """Compile those that are not yet, at the same time and beside what follows.

        With them what makes the first state, as long as there is none.
        """
        if self._state is None:
            steps = [('init', 0, 0), *steps]
        with guarded(), self._tracing:
            for key in steps:
                if key not in self._begun:
                    self._begun[key] = self._build(*key)

    def _build(self, name: str, batch: int, length: int) -> Future:
        if name == 'init':
            return self._build_init()
        if name == 'policy_ids':
            return self._build_table(batch, length)
        view = {k: self._shapes[k] for k in self.view_names}
        fn, init, flat, spaces, mesh, donated = {
            'policy': (self._policy, self.model.init_policy, view, self.obs_space,
                       self.policy_mesh, (1,)),
            'train': (self._train, self.model.init_train, self._shapes, self.spaces,
                      self.train_mesh, (0, 1)),
            'report': (self._report, self.model.init_report, self._shapes, self.spaces,
                       self.train_mesh, ()),
        }[name]  # fmt: skip
        whole, split = sharding.replicated(mesh), sharding.batch_sharding(mesh, batch)
        lead = (batch, length) if length else (batch,)
        data = {k: jax.ShapeDtypeStruct((*lead, *s.shape), s.dtype) for k, s in spaces.items()}
        args = flat, jax.eval_shape(lambda: init(batch)), data, self._seeds(0, name)
        outs = {
            'policy': (split, split, split, whole),
            'train': (whole, split, split, whole),
            'report': (split, whole),
        }[name]
        jitted = jax.jit(
            fn, in_shardings=(whole, split, split, whole), out_shardings=outs,
            donate_argnums=donated,
        )  # fmt: skip
        return self._compile(name, mesh, jitted, *args)

    def _build_table(self, batch: int, capacity: int) -> Future:
        """The policy for some rows of a table of states."""
        whole = sharding.replicated(self.policy_mesh)
        split = sharding.batch_sharding(self.policy_mesh, batch)
        obs = {
            k: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype)
            for k, x in self.obs_space.items()
        }
        table = jax.eval_shape(lambda: self.model.init_policy(capacity))
        ids = jax.ShapeDtypeStruct((batch,), np.int32)
        jitted = jax.jit(
            self._policy_ids, in_shardings=(whole, whole, whole, split, whole),
            out_shardings=(whole, split, split, whole), donate_argnums=(1,),
        )  # fmt: skip
        view = {k: self._shapes[k] for k in self.view_names}
        args = view, table, ids, obs, self._seeds(0, 'policy')
        return self._compile('policy_ids', self.policy_mesh, jitted, *args)

    def _build_init(self) -> Future:
        """What makes a fresh training state."""
        whole = sharding.replicated(self.train_mesh)
        jitted = jax.jit(
            lambda key: names.flatten(self.model.init(jax.random.wrap_key_data(key))),
            in_shardings=whole, out_shardings=whole,
        )  # fmt: skip
        return self._compile('init', self.train_mesh, jitted, self._seeds(0, 'init'))

    def _compile(self, name: str, mesh: Mesh, jitted: Any, *args: Any) -> Future:
        if not self.config.jax.jit:
            plain: Future = Future()
            plain.set_result(jitted)
            return plain
        return compiler.begin(
            jitted, *args, name=name, devices=list(mesh.devices.flat),
            step_cache=self._step_cache, fast_start=self.config.jax.debug,
            seldom=name in ('init', 'report'),
        )  # fmt: skip

    def _open_step_cache(self) -> StepCache | None:
        """Where compiled steps are kept, with all that they depend on beside their shapes.

        Not those of several machines: a step that one of them finds, another may not.
        """
        jaxcfg = self.config.jax
        if not jaxcfg.compilation_cache or not jaxcfg.jit or jax.process_count() > 1:
            return None
        folder = Path(jaxcfg.compilation_cache).expanduser() / 'steps'
        try:
            return StepCache(folder, self._facts(), sources(type(self.model), type(self)))
        except Exception as error:  # sources that cannot be read, or of no file
            print(f'Compiled steps are not kept: {reason(error)}')
            return None

    def _facts(self) -> list:
        """What the steps are made from."""
        config = {k: v for k, v in self.config.flat.items() if k not in UNTRACED}
        spaces = [
            (k, s.dtype.name, s.shape, np.array(s.low).tolist(), np.array(s.high).tolist())
            for k, s in self.spaces.items()
        ]
        classes = [f'{x.__module__}.{x.__qualname__}' for x in (type(self.model), type(self))]
        return [classes, config, spaces, str(self.train_mesh), str(self.policy_mesh)]

    def _seeds(self, count: int, purpose: str) -> np.ndarray:
        """Data of the key of a call, uint32: that of its purpose plus the number of the call.

        Computed here: in a compiled step that takes a dozen kernels and more time.
        """
        value = (self._keys[purpose] + count) % 2 ** (32 * self._words)
        return np.frombuffer(value.to_bytes(4 * self._words, 'little'), '<u4')

    def _sync(self) -> None:
        """Hand the current parameters to the policy, as copies: training donates its own."""
        if not self.config.jax.enable_policy:
            return
        view = self._copy({k: self.state[k] for k in self.view_names})
        self._view = jax.device_put(view, sharding.replicated(self.policy_mesh))


def _mix(seed: int, purpose: str, words: int) -> int:
    """Data of a first key, as one number, from a seed and what it is for."""
    halves = [int(seed) >> shift & 2**32 - 1 for shift in (0, 32)]
    mixed = np.random.SeedSequence([*halves, PURPOSES.index(purpose)]).generate_state(words)
    return int.from_bytes(mixed.astype('<u4').tobytes(), 'little')


@contextlib.contextmanager
def guarded():
    """For all that JAX does: with our settings, and advice about a device without memory."""
    try:
        with settings.ours():
            yield
    except jax.errors.JaxRuntimeError as error:
        if 'RESOURCE_EXHAUSTED' not in str(error):
            raise
        raise UserError(
            'The device ran out of memory; try --batch_size 1, a smaller size block '
            '(--configs … size12m), or --jax.platform cpu'
        ) from error
