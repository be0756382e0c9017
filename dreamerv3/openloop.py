"""Open-loop videos: what the world model expects after it has seen half of a sequence."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, UInt8

from . import pixels
from .decoder import Decoder
from .rssm import RSSM

SEQUENCES = 6
BORDER = 2
OBSERVED, IMAGINED = (0, 255, 0), (255, 0, 0)
ROWS = ('truth', 'model', 'error')
FONT = 11  # pixels
LEAST = 32  # height of a row in pixels, below which videos are magnified


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
        f'openloop/{name}': video(
            pixels.shown(space, obs[name][:count]), dists[name].pred(), half
        )
        for name, space in dec.images.items()
    }


def video(
    truth: UInt8[Array, 'n t h w c'], pred: Array, observed: int
) -> UInt8[Array, 't2 h2 w2 c']:
    """Rows truth, prediction (0…1), error; sequences side by side; black frames at the end.

    The truth is in 0…255. Each sequence has a border, green for the `observed` first frames and
    red after them.
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


def label(video: UInt8[np.ndarray, 't h w c']) -> UInt8[np.ndarray, 't h2 w2 c']:
    """A video of `video` with the names of its rows at the left; small ones are magnified."""
    factor = -(-LEAST * len(ROWS) // video.shape[1])
    video = video.repeat(factor, 1).repeat(factor, 2)
    length, height, _, channels = video.shape
    names = _names(height)[None, :, :, None]
    names = np.broadcast_to(names, (length, *names.shape[1:3], channels))
    return np.concatenate([names, video], 2)


@functools.cache
def _names(height: int) -> np.ndarray:
    """The names of the rows, white on black, each in the middle of its row."""
    import PIL.Image
    import PIL.ImageDraw
    import PIL.ImageFont

    font = PIL.ImageFont.load_default(FONT)
    width = max(int(font.getlength(name)) for name in ROWS) + 7
    image = PIL.Image.new('L', (width, height))
    draw = PIL.ImageDraw.Draw(image)
    for index, name in enumerate(ROWS):
        middle = height * (2 * index + 1) // (2 * len(ROWS))
        draw.text((width // 2, middle), name, 255, font, anchor='mm')
    return np.asarray(image)
