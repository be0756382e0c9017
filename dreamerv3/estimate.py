"""Roughly how much memory a model needs and how long one of its updates takes.

Counted from the config and the spaces alone: every layer has parameters, multiply-adds and
outputs; an update applies the layers so many times, forwards or also backwards. Parameters
come out exactly (for the usual norm rms); the rest is good to about a factor of two.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import elements

from dreamerv3 import config as configs
from dreamerv3.encoder import split_spaces
from embodied.jax import concat, distributions

GB = 1e9
SHARE = 0.8  # of the free memory that a model may fill
PATIENCE = 10.0  # seconds per update beyond which learning on a CPU is hopeless
HOPELESS = 120.0  # seconds per update on a CPU beyond which a start is refused
CALL = 1e-3  # seconds of a call of the policy beside its arithmetic
# Measured with the task dummy_disc on two shared cores, blocks size1m and debug: XLA's buffers
# were 4.0 and 4.4 times the values that layers put out, the process took 0.9 and 0.6 GB beside
# them, and an update took 4.5 and 6 to 7 times as long as a product of as many operations.
# An accelerator may need less memory than that.
BUFFERS = 4.0
PROCESS = 0.9 * GB
SLOWDOWN = 4.5
SLOWDOWN_DEBUG = 7.0  # with jax.debug
SIZES = tuple(name for name in configs.block_names() if name.startswith('size'))
# Multiply-adds of an operation that is also differentiated: forwards, and twice backwards.
TRAINED = 3


@dataclass(frozen=True)
class Cost:
    """Of a layer or several: parameters, and multiply-adds and outputs of one application."""

    params: int = 0
    macs: int = 0
    values: int = 0

    def __add__(self, other: 'Cost') -> 'Cost':
        return Cost(
            self.params + other.params, self.macs + other.macs, self.values + other.values
        )


@dataclass(frozen=True)
class Estimate:
    """Trained parameters by module, bytes of the device, operations of one update."""

    params: dict[str, int]
    bytes: float
    flops: float


def estimate(
    config: elements.Config, obs_space: Mapping[str, Any], act_space: Mapping[str, Any]
) -> Estimate:
    """Estimate for the spaces between agent and environment and a whole config."""
    parts = costs(config.agent, obs_space, act_space)
    steps = config.batch_size * config.batch_length
    last = config.agent.imag_last or config.batch_length
    starts = config.batch_size * min(last, config.batch_length)
    imagined = starts * (config.agent.imag_length + 1)
    world = _sum(parts[k] for k in ('enc', 'core', 'obs', 'prior', 'dec', 'rew', 'con'))
    rollout = _sum(parts[k] for k in ('core', 'prior', 'pol', 'draw'))
    pol, val = parts['pol'], parts['val']
    macs = (
        TRAINED * steps * world.macs
        + imagined * rollout.macs
        + imagined * (parts['rew'].macs + parts['con'].macs + val.macs)
        + TRAINED * imagined * (pol.macs + val.macs)
        + (TRAINED + 1) * starts * val.macs * config.agent.repval_loss
    )
    params = {k: parts[k].params for k in ('enc', 'dec', 'rew', 'con', 'pol', 'val')}
    params['dyn'] = sum(parts[k].params for k in ('core', 'obs', 'prior'))
    rssm = config.agent.dyn.rssm
    feat = rssm.deter + rssm.stoch * rssm.classes
    kept = steps * world.values + imagined * (2 * feat + pol.values + val.values)
    kept += starts * parts['draw'].values  # of one step: draws have no backward pass
    size = _state_bytes(config, params) + BUFFERS * kept * _width(config)
    return Estimate(params, size, 2.0 * macs)


def costs(
    config: elements.Config, obs_space: Mapping[str, Any], act_space: Mapping[str, Any]
) -> dict[str, Cost]:
    """What one application of each part costs; the section `agent` of a config.

    `core` (the recurrent step), `obs` (posterior) and `prior` make up dyn; `draw` selects an
    action.
    """
    vectors, images = split_spaces(obs_space)
    rssm = config.dyn.rssm
    deter, hidden, stoch = rssm.deter, rssm.hidden, rssm.stoch * rssm.classes
    enc, tokens = _encoder(config.enc.simple, vectors, images)
    ins = (deter, stoch, concat.width(act_space))
    core = _sum(_layer(n, hidden) for n in ins) + Cost(values=concat.width(act_space))
    for i in range(rssm.dynlayers):
        core += _layer(deter + 3 * hidden * rssm.blocks * (i == 0), deter, rssm.blocks)
    core += _linear(deter, 3 * deter, rssm.blocks)
    inp = tokens if rssm.absolute else deter + tokens
    feat = deter + stoch
    actions = sum(
        math.prod(s.shape) * (concat.classes(s) if s.discrete else 2)
        for s in act_space.values()
    )
    return {
        'enc': enc,
        'core': core,
        'obs': _mlp(inp, rssm.obslayers, hidden, stoch),
        'prior': _mlp(deter, rssm.imglayers, hidden, stoch),
        'dec': _decoder(config.dec.simple, vectors, images, deter, stoch),
        'rew': _mlp(feat, config.rewhead.layers, config.rewhead.units, config.rewhead.bins),
        'con': _mlp(feat, config.conhead.layers, config.conhead.units, 1),
        'pol': _mlp(feat, config.policy.layers, config.policy.units, actions),
        'val': _mlp(feat, config.value.layers, config.value.units, config.value.bins),
        'draw': _sum(_draw(s) for s in act_space.values() if s.discrete),
    }


def describe(
    config: elements.Config,
    obs_space: Mapping[str, Any],
    act_space: Mapping[str, Any],
    free: float | None,
    rate: float | None,
) -> str:
    """What the start says; '' on an accelerator whose memory suffices.

    free: bytes of the device that learns, None if unknown. rate: operations per second of a
    CPU, None on an accelerator, which is always fast enough.
    """
    own = _need(config, obs_space, act_space, rate)
    if rate is None and own.bytes <= _room(free):
        return ''
    text = f'estimate: {own}'
    text += '' if free is None else f'; {free / GB:.1f} GB are free'
    text += '' if own.bytes <= _room(free) else ': too little'
    sizes = _sizes(config, obs_space, act_space, free, rate)
    if not sizes:
        return f'{text}\nno size block fits here; lower --batch_size, or try --configs debug'
    name, what = _best(sizes)
    return f'{text}\n{what} size block that fits: --configs {name} ({sizes[name]})'


def refusal(
    config: elements.Config,
    obs_space: Mapping[str, Any],
    act_space: Mapping[str, Any],
    free: float | None,
    rate: float | None,
) -> str:
    """Why a start would come to nothing, and what to change; '' if it may go on.

    The arguments are those of `describe`.
    """
    own = _need(config, obs_space, act_space, rate)
    problems = []
    if own.bytes > _room(free):
        problems.append(
            f'needs about {_rough(own.bytes / GB)} GB of memory, too much for the '
            f'{(free or 0) / GB:.1f} GB that are free'
        )
    if (own.seconds or 0) > HOPELESS:
        problems.append(f'takes about {_rough(own.seconds)} s per update on this CPU')
    if not problems:
        return ''
    sizes = _sizes(config, obs_space, act_space, free, rate)
    advice = f'the block {_best(sizes)[0]}' if sizes else 'the block debug'
    return (
        f'This model {", and ".join(problems)}. Add {advice} to --configs, or lower '
        '--batch_size; --force True starts all the same.'
    )


def duration(
    config: elements.Config,
    obs_space: Mapping[str, Any],
    act_space: Mapping[str, Any],
    rate: float | None,
) -> str:
    """How long the run would take on a CPU, without its environments; '' where unknown."""
    run = config.run
    if rate is None or run.train_ratio < 0:
        return ''
    updates = run.steps * run.train_ratio / (config.batch_size * config.batch_length)
    update = _need(config, obs_space, act_space, rate).seconds
    parts = costs(config.agent, obs_space, act_space)
    acting = sum(2 * parts[k].macs for k in ('enc', 'core', 'obs', 'pol')) * SLOWDOWN / rate
    seconds = updates * update + run.steps * (acting + CALL / run.envs)
    if run.duration and run.duration < seconds:
        return f'this run: ends after {_time(run.duration)}'
    return (
        f'this run: {run.steps:,.0f} steps with {updates:,.0f} updates take about '
        f'{_time(seconds)}, beside the environments'
    )


def _need(config, obs_space, act_space, rate) -> 'Need':
    return _on(config, estimate(config, obs_space, act_space), rate)


def _room(free: float | None) -> float:
    """Bytes that a model may fill."""
    return math.inf if free is None else SHARE * free


def _sizes(config, obs_space, act_space, free, rate) -> dict[str, 'Need']:
    """What the size blocks need on top of the config, if there is room for it."""
    sizes = {
        name: _need(configs.with_block(config, name), obs_space, act_space, rate)
        for name in SIZES
    }
    return {name: size for name, size in sizes.items() if size.bytes <= _room(free)}


def _best(sizes: Mapping[str, 'Need']) -> tuple[str, str]:
    """The largest block that is quick, or else the fastest, and which of them it is."""
    quick = [name for name, size in sizes.items() if (size.seconds or 0) <= PATIENCE]
    return (quick[-1], 'largest') if quick else (next(iter(sizes)), 'fastest')


@dataclass(frozen=True)
class Need:
    """Parameters, bytes, and on a CPU seconds per update, of a model on one device."""

    params: int
    bytes: float
    seconds: float | None

    def __str__(self) -> str:
        text = (
            f'{self.params / 1e6:.3g}M parameters, about {_rough(self.bytes / GB)} GB of memory'
        )
        return text + (f' and {_rough(self.seconds)} s per update' if self.seconds else '')


def _time(seconds: float) -> str:
    """A duration in the unit that suits it."""
    units = {'s': 1, 'min': 60, 'hours': 3600, 'days': 86400, 'years': 365 * 86400}
    unit = [x for x, size in units.items() if seconds >= 2 * size or x == 's'][-1]
    return f'{_rough(seconds / units[unit])} {unit}'


def _rough(number: float) -> str:
    return f'{number:.2g}' if number < 10 else f'{number:,.0f}'


def _on(config: elements.Config, model: Estimate, rate: float | None) -> Need:
    params = sum(model.params.values())
    if rate is None:
        return Need(params, model.bytes, None)
    slowdown = SLOWDOWN_DEBUG if config.jax.debug else SLOWDOWN
    return Need(params, model.bytes + PROCESS, slowdown * model.flops / rate)


def _state_bytes(config: elements.Config, params: Mapping[str, int]) -> float:
    """Parameters, moments, updates, gradients twice; slow critic and copies of the policy."""
    everything, acting = sum(params.values()), params['enc'] + params['dyn'] + params['pol']
    copies = 5 + config.agent.opt.momentum
    return 4.0 * (copies * everything + params['val'] + 2 * acting)


def _width(config: elements.Config) -> int:
    """Bytes of a value between two layers."""
    return 4 if config.jax.compute_dtype == 'float32' else 2


def _sum(items: Any) -> Cost:
    return sum(items, start=Cost())


def _draw(space: Any) -> Cost:
    """Of an action by inversion: probabilities, their running sums, and comparisons."""
    count, classes = math.prod(space.shape), concat.classes(space)
    each = classes if classes <= distributions.MANY else distributions.BLOCK
    return Cost(macs=count * classes * each, values=3 * count * classes)


def _linear(inp: int, out: int, blocks: int = 1) -> Cost:
    return Cost(inp * out // blocks + out, inp * out // blocks, out)


def _layer(inp: int, out: int, blocks: int = 1) -> Cost:
    """With norm and activation."""
    return _linear(inp, out, blocks) + Cost(out, 0, out)


def _mlp(inp: int, layers: int, units: int, out: int = 0) -> Cost:
    """Layers, and a linear output if it has units."""
    sizes = [inp] + [units] * layers
    body = _sum(_layer(sizes[i], units) for i in range(layers))
    return body + _linear(sizes[-1], out) if out else body


def _conv(inp: int, out: int, kernel: int, pixels: int, norm: bool = True) -> Cost:
    weights = kernel * kernel * inp * out
    return Cost(weights + out + norm * out, weights * pixels, (1 + norm) * out * pixels)


def _sides(net: Any, images: Mapping[str, Any]) -> tuple[int, int, list[int], list[int]]:
    """Channels, pixels of an image, depth of each stage, and pixels that go into each."""
    height, width = next(iter(images.values())).shape[:2]
    halved = [max(0, i - bool(net.outer)) for i in range(len(net.mults) + 1)]
    pixels = [height * width // 4**n for n in halved]
    channels = sum(s.shape[-1] for s in images.values())
    return channels, height * width, [net.depth * m for m in net.mults], pixels


def _encoder(net: Any, vectors: Mapping[str, Any], images: Mapping[str, Any]):
    """Cost and width of the tokens."""
    cost, width = Cost(), 0
    if vectors:
        inp = concat.width(vectors)
        cost += Cost(values=inp) + _mlp(inp, net.layers, net.units)
        width += net.units if net.layers else inp
    if images:
        channels, _, depths, pixels = _sides(net, images)
        for i, depth in enumerate(depths):
            inp = depths[i - 1] if i else channels
            cost += _conv(inp, depth, net.kernel, pixels[i + 1 if net.strided else i])
        width += pixels[-1] * depths[-1]
    return cost, width


def _decoder(
    net: Any, vectors: Mapping[str, Any], images: Mapping[str, Any], deter: int, stoch: int
) -> Cost:
    cost = Cost()
    if vectors:
        cost += _mlp(deter + stoch, net.layers, net.units)
        inp = net.units if net.layers else deter + stoch
        cost += _sum(
            _linear(inp, math.prod(s.shape) * (concat.classes(s) if s.discrete else 1))
            for s in vectors.values()
        )
    if images:
        channels, whole, depths, pixels = _sides(net, images)
        first = pixels[-1] * depths[-1]
        if net.bspace:
            cost += _linear(deter, first, net.bspace)
            cost += _layer(stoch, 2 * net.units) + _linear(2 * net.units, first)
        else:
            cost += _linear(deter + stoch, first)
        cost += Cost(params=depths[-1])  # of the norm
        for i in range(len(depths) - 1):
            cost += _conv(depths[i + 1], depths[i], net.kernel, pixels[i + 1])
        cost += _conv(depths[0], channels, net.kernel, whole, norm=False)
    return cost
