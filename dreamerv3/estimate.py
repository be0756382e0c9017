"""Roughly how much memory a model needs, and how many operations one of its updates.

Counted from the config and the spaces alone: every layer has parameters, multiply-adds and
outputs; an update applies the layers so many times, forwards or also backwards. Parameters
come out exactly (for the usual norm rms); the rest is good to about a factor of two.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import elements

from dreamerv3.encoder import split_spaces
from embodied.jax import concat, distributions

# XLA's analysis of the update (`benchmarks/train.py --count`, blocks size1m and size12m, images
# and vectors) gives buffers of 1.0 to 1.3 times the values that layers put out; there is room
# for what an accelerator adds.
BUFFERS = 1.5
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
