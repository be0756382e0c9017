"""What a start says of the memory and time that its model takes, and when it had better not be.

Good to about a factor of two, as `estimate` and the speed of a CPU are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import elements

from dreamerv3 import config as configs
from dreamerv3.estimate import Estimate, costs, estimate

GB = 1e9
SHARE = 0.8  # of the free memory that a model may fill
PATIENCE = 10.0  # seconds per update on a CPU up to which a size block is recommended
HOPELESS = 120.0  # and beyond which a start is refused
# Measured with the task dummy_disc on two shared cores, blocks size1m and debug: the process
# took 0.9 and 0.6 GB beside the buffers of XLA, and an update took 4.5 and 6 to 7 times as long
# as a product of as many operations.
PROCESS = 0.9 * GB
SLOWDOWN = 4.5
SLOWDOWN_DEBUG = 7.0  # with jax.debug
CALL = 1e-3  # seconds of a call of the policy beside its arithmetic
SIZES = tuple(name for name in configs.block_names() if name.startswith('size'))


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
    better = {name: size for name, size in sizes.items() if (size.seconds or 0) <= HOPELESS}
    block = _best(better)[0] if better else 'debug'
    return (
        f'This model {", and ".join(problems)}. Add the block {block} to --configs, or lower '
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


def _need(config, obs_space, act_space, rate) -> Need:
    return _on(config, estimate(config, obs_space, act_space), rate)


def _room(free: float | None) -> float:
    """Bytes that a model may fill."""
    return math.inf if free is None else SHARE * free


def _sizes(config, obs_space, act_space, free, rate) -> dict[str, Need]:
    """What the size blocks need on top of the config, if there is room for it."""
    sizes = {
        name: _need(configs.with_block(config, name), obs_space, act_space, rate)
        for name in SIZES
    }
    return {name: size for name, size in sizes.items() if size.bytes <= _room(free)}


def _best(sizes: Mapping[str, Need]) -> tuple[str, str]:
    """The largest block that is quick, or else the fastest, and which of them it is."""
    quick = [name for name, size in sizes.items() if (size.seconds or 0) <= PATIENCE]
    return (quick[-1], 'largest') if quick else (next(iter(sizes)), 'fastest')


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
