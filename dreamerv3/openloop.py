"""Open-loop videos: what the world model expects after it has seen half of a sequence."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, UInt8

from .decoder import Decoder
from .rssm import RSSM

SEQUENCES = 6
BORDER = 2
OBSERVED, IMAGINED = (0, 255, 0), (255, 0, 0)


def videos(
    dyn: RSSM, dec: Decoder, start: Mapping[str, Array], states: Mapping[str, Array],
    obs: Mapping[str, Array], prevact: Mapping[str, Array], key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """Metrics `openloop/KEY`, one video (T', H', W', C) uint8 for each image key.

    `states` are the posterior states of the observations; their first half is kept, and the
    second half is imagined from there with the recorded actions.
    """
    count = min(SEQUENCES, len(obs['is_first']))
    length = obs['is_first'].shape[1]
    half = length // 2
    cut = lambda tree: jax.tree.map(lambda x: x[:count], tree)
    keys = ('deter', 'stoch')
    seen = {k: states[k][:count, :half] for k in keys}
    last = {k: seen[k][:, -1] if half else start[k][:count] for k in keys}
    future = jax.tree.map(lambda x: x[:, half:], cut(dict(prevact)))
    guessed = dyn.replay(last, future, key)
    both = {k: jnp.concatenate([seen[k], guessed[k]], 1) for k in keys}
    dists = dec(both)
    return {
        f'openloop/{name}': video(obs[name][:count], dists[name].pred(), half)
        for name in dec.images
    }


def video(
    truth: UInt8[Array, 'n t h w c'], pred: Array, observed: int
) -> UInt8[Array, 't2 h2 w2 c']:
    """Rows truth, prediction (0…1), error; sequences side by side; black frames at the end.

    Each sequence has a border, green for the `observed` first frames and red after them.
    """
    length, channels = truth.shape[1], truth.shape[-1]
    pred = jnp.clip(pred * 255, 0, 255).astype(jnp.uint8)
    error = ((pred.astype(jnp.int32) - truth.astype(jnp.int32) + 255) // 2).astype(jnp.uint8)
    frames = jnp.concatenate([truth, pred, error], 2)
    pad = ((0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER), (0, 0))
    inside = jnp.pad(jnp.ones(frames.shape[2:4], bool), BORDER)
    frames = jnp.pad(frames, pad)
    green = (jnp.arange(length) < observed)[:, None]
    color = jnp.where(green, jnp.array([OBSERVED]), jnp.array([IMAGINED])).astype(jnp.uint8)
    color = color if channels == 3 else jnp.full((length, channels), 255, jnp.uint8)
    frames = jnp.where(inside[None, None, :, :, None], frames, color[None, :, None, None, :])
    frames = jnp.moveaxis(frames, 0, 2)
    frames = frames.reshape(*frames.shape[:2], -1, channels)
    return jnp.pad(frames, ((0, min(length, 10)), (0, 0), (0, 0), (0, 0)))
