"""Images within the range that their space declares."""

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import inference, openloop, pixels
from dreamerv3.decoder import Decoder
from dreamerv3.encoder import Encoder
from dreamerv3.rssm import RSSM

FLAGS = {'is_first': elements.Space(bool), 'reward': elements.Space(np.float32)}
NET = {
    'depth': 2, 'mults': (1, 1), 'layers': 1, 'units': 4, 'act': 'silu', 'norm': 'rms',
    'winit': 'trunc_normal_in', 'outer': False, 'kernel': 3, 'strided': False,
}  # fmt: skip


def space(low=0, high=256, channels=1):
    return elements.Space(np.uint8, (12, 12, channels), low, high)


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize('high', [255, 256])
def test_pictures_are_divided_by_255_to_the_last_bit(dtype, high):
    image = jnp.arange(288, dtype=jnp.int32).astype(jnp.uint8).reshape(2, 12, 12, 1)
    found = pixels.scale({'a': space(0, high)}, image, dtype)
    np.testing.assert_array_equal(found, image.astype(dtype) / 255)
    assert found.dtype == dtype
    assert pixels.shown(space(0, high), image) is image


@pytest.mark.parametrize(
    ('low', 'high', 'values', 'wanted'),
    [
        (0, 2, [0, 1], [0, 1]),
        (0, 21, [0, 5, 20], [0, 0.25, 1]),
        (16, 236, [16, 126, 235], [0, 0.5, 1]),
        (7, 8, [7], [0]),
    ],
)
def test_other_ranges_are_scaled_to_both_ends(low, high, values, wanted):
    image = jnp.broadcast_to(jnp.uint8(values)[:, None, None, None], (len(values), 12, 12, 1))
    found = pixels.scale({'a': space(low, high)}, image, jnp.float32)
    np.testing.assert_allclose(found[:, 3, 4, 0], wanted, atol=0.003)
    shown = pixels.shown(space(low, high), image)
    np.testing.assert_array_equal(
        shown[:, 3, 4, 0], np.rint(255 * np.asarray(found[:, 0, 0, 0]))
    )
    assert shown.dtype == np.uint8


def test_each_channel_has_its_own_range():
    spaces = {'a': space(channels=2), 'm': space(0, np.array([2, 11])[None, None], 2)}
    image = jnp.broadcast_to(jnp.uint8([255, 51, 1, 5]), (1, 12, 12, 4))
    found = pixels.scale(spaces, image, jnp.float32)
    np.testing.assert_allclose(found[0, 0, 0], [1, 0.2, 1, 0.5], rtol=1e-6)


@pytest.fixture(scope='module')
def masked():
    """Spaces of a picture and a mask, as a checkpoint holds them."""
    spaces = {'camera': space(channels=3), 'mask': space(0, 2), **FLAGS}
    about = inference.describe(spaces, {}, elements.Config(a=1))
    return inference._read(about['obs_space'])


@pytest.fixture(scope='module')
def dec(masked):
    return Decoder(jax.random.key(0), masked, (8, 2, 4), outscale=1.0, bspace=0, **NET)


def views(value, *batch):
    """Observations with a mask of one value."""
    camera = jnp.full((*batch, 12, 12, 3), 128, jnp.uint8)
    return {'camera': camera, 'mask': jnp.full((*batch, 12, 12, 1), value, jnp.uint8)}


def states(*batch):
    return {'deter': jnp.zeros((*batch, 8)), 'stoch': jnp.zeros((*batch, 2, 4))}


def test_the_encoder_sees_a_mask_as_it_sees_black_and_white(masked):
    plain = {'camera': masked['camera'], 'mask': space()}
    ours, theirs = (
        Encoder(jax.random.key(0), x, jnp.float32, symlog=True, **NET) for x in (masked, plain)
    )
    for value, pixel in ((0, 0), (1, 255)):
        np.testing.assert_array_equal(ours(views(value, 1)), theirs(views(pixel, 1)))


def test_the_decoder_is_told_what_a_mask_shows(dec):
    means = {key: dist.pred() for key, dist in dec(states(1)).items()}
    for value in (0, 1):
        losses = dec.loss(states(1), views(value, 1))
        for key, target in (('mask', value), ('camera', 128 / 255)):
            wanted = jnp.square(means[key] - target).sum((1, 2, 3))
            np.testing.assert_allclose(losses[key], wanted, rtol=1e-6)


def test_videos_show_a_mask_in_black_and_white(dec, monkeypatch):
    monkeypatch.setattr(RSSM, 'replay', lambda self, last, actions, key: states(1, 2))
    obs = {'is_first': jnp.zeros((1, 4), bool), **views(1, 1, 4)}
    acts = {'action': jnp.zeros((1, 4))}
    videos = openloop.videos(
        object.__new__(RSSM), dec, states(1), states(1, 4), obs, acts, jax.random.key(0)
    )
    for key, pixel in (('mask', 255), ('camera', 128)):
        truth = videos[f'openloop/{key}'][:4, 2:14, 2:14]
        np.testing.assert_array_equal(truth, pixel)
        mean = dec(states(1))[key].pred()[0, 4, 4, 0]
        assert videos[f'openloop/{key}'][0, 18, 6, 0] == int(255 * mean)
