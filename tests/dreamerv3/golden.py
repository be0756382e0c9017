"""The recorded figures of tests/golden as objects: spaces, config, batches, parameters.

The reference names and stores some things in another way (see tests/golden/README.md): its
latents are one-hot float32, and its parameters carry their own names.
"""

import functools
import json
import pathlib

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamerv3 import config as configlib
from dreamerv3 import reference
from dreamerv3.agent import Dreamer
from embodied.jax import distributions, packing
from embodied.jax.runtime import names

FOLDER = pathlib.Path(__file__).parent.parent / 'golden'
FILES = ('vector_cont', 'options', 'image_disc', 'strided', 'mixed')


class Modes(distributions.Draws):
    """Draws replaced by modes, as in the recording."""

    def categorical(self, uniform, logits):
        return jnp.argmax(logits, -1)

    def normal(self, uniform):
        return jnp.full_like(uniform, 0.5)


def arrays(state) -> dict:
    """All arrays of a training state by the names of checkpoints."""
    return packing.apart(names.flatten(state), packing.layouts(state))


class Golden:
    """One recorded file."""

    def __init__(self, name: str):
        self.name = name
        self.data = dict(np.load(FOLDER / f'{name}.npz'))
        self.meta = json.loads(str(self.data.pop('meta')))
        self.obs_space, self.act_space = spaces(self.meta['kind'])
        self.config = agent_config(self.meta['overrides'])
        self.dreamer = Dreamer(self.obs_space, self.act_space, self.config)
        self.decay = self.config.opt.wd > 0

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """Entries below a prefix, by the rest of their names."""
        cut = len(prefix) + 1
        return {k[cut:]: v for k, v in self.data.items() if k.startswith(prefix + '/')}

    def state(self, prefix: str):
        """Training state with the recorded parameters, by our names."""
        flat = {reference.from_reference(k): v for k, v in self.part(prefix).items()}
        flat = packing.joined(flat, packing.layouts(self.template))
        return names.unflatten(self.template, {k: jnp.asarray(v) for k, v in flat.items()})

    @functools.cached_property
    def template(self):
        return jax.eval_shape(self.dreamer.init, jax.random.key(0))

    def batch(self, prefix: str) -> dict[str, np.ndarray]:
        """A recorded batch with the latents as our replay stores them."""
        data = self.part(prefix)
        if 'dyn/stoch' in data:
            data['dyn/stoch'] = data['dyn/stoch'].argmax(-1).astype(np.uint8)
        return data


def fast_jit(fn):
    """Like eqx.filter_jit, compiled quickly; all calls share what is no array in the first."""
    options = {'xla_backend_optimization_level': 0, 'xla_llvm_disable_expensive_passes': True}
    static = []

    def pure(arrays):
        out, rest = eqx.partition(fn(*eqx.combine(arrays, static[0])), eqx.is_array)
        static.append(rest)
        return out

    jitted = jax.jit(pure, compiler_options=options)

    def call(*args):
        arrays, rest = eqx.partition(args, eqx.is_array)
        if not static:
            static.append(rest)
        return eqx.combine(jitted(arrays), static[1])

    return call


def spaces(kind: str) -> tuple[dict, dict]:
    """Observation and action spaces of a recorded file."""
    space = elements.Space
    obs = {
        'vector_cont': {
            'position': space(np.float32, 5),
            'velocity': space(np.float32, 3),
            'height': space(np.float32),
        },
        'image_disc': {'image': space(np.uint8, (64, 64, 3))},
        'mixed': {
            'image': space(np.uint8, (64, 64, 3)),
            'vector': space(np.float32, 7),
            'token': space(np.int32, (), 0, 256),
            'float2d': space(np.float32, (4, 5)),
            'int2d': space(np.int32, (2, 3), 0, 4),
        },
    }[kind]
    obs |= {
        'reward': space(np.float32),
        'is_first': space(bool),
        'is_last': space(bool),
        'is_terminal': space(bool),
    }
    act = {
        'vector_cont': {'action': space(np.float32, 4, -1, 1)},
        'image_disc': {'action': space(np.int32, (), 0, 17)},
        'mixed': {
            'act_disc': space(np.int32, (), 0, 5),
            'act_cont': space(np.float32, 6, -1, 1),
        },
    }[kind]
    return obs, act


def agent_config(overrides: dict, blocks=()) -> elements.Config:
    """What the agent gets, in float32, for overrides of the whole configuration.

    No steps are kept: tracing them is what checks the shapes of the annotations.
    """
    own = {'jax.compute_dtype': 'float32', 'jax.compilation_cache': ''}
    config = configlib.load(blocks, {**own, **overrides})
    return elements.Config(
        **config.agent, jax=config.jax, seed=config.seed, batch_size=config.batch_size,
        batch_length=config.batch_length, report_length=config.report_length,
        replay_context=config.replay_context, replay_priority=False,
    )  # fmt: skip
