"""The map between our names and the reference's is one to one, on all recorded names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import reference

from . import golden


@pytest.mark.parametrize('name', golden.FILES)
def test_all_names_map_both_ways(name):
    file = golden.Golden(name)
    theirs = file.part('params0')
    ours = {reference.from_reference(k): v for k, v in theirs.items()}
    template = jax.eval_shape(golden.arrays, file.template)
    assert set(ours) == set(template)
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in template.items()}
    back = {reference.to_reference(k, file.decay) for k in ours}
    assert back == set(theirs)


def test_unknown_names_are_refused():
    for name in ('enc/foo/kernel', 'slowval', 'opt/state/9/x'):
        with pytest.raises(KeyError):
            reference.from_reference(name)


def test_maps_of_image_decoders_without_blocks():
    assert reference.from_reference('dec/space/kernel') == 'dec/space/dense/kernel'
    assert reference.from_reference('dec/spacenorm/scale') == 'dec/space/densenorm/scale'
    assert reference.to_reference('dec/space/densenorm/scale') == 'dec/spacenorm/scale'


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32', 'float16'])
def test_latents_of_a_chunk_take_the_stored_form(dtype):
    rng = np.random.default_rng(0)
    index = rng.integers(5, size=(7, 3))
    deter = rng.normal(size=(7, 4)).astype(np.float32)
    image = np.zeros((7, 2, 2, 3), np.uint8)
    onehot = np.eye(5, dtype=np.float32)[index]
    given = {'image': image, 'dyn/stoch': onehot, 'dyn/deter': deter}
    got = reference.convert_chunk(given, dtype)
    assert got['image'] is image
    assert given['dyn/stoch'] is onehot
    assert got['dyn/stoch'].dtype == np.uint8
    np.testing.assert_array_equal(got['dyn/stoch'], index)
    rounded = np.asarray(jnp.asarray(deter, dtype))
    if dtype == 'bfloat16':
        assert got['dyn/deter'].dtype == np.uint16
        np.testing.assert_array_equal(got['dyn/deter'], rounded.view(np.uint16))
    else:
        assert got['dyn/deter'].dtype == rounded.dtype
        np.testing.assert_array_equal(got['dyn/deter'], rounded)
    again = reference.convert_chunk(got, dtype)
    assert all(again[key] is got[key] for key in got)
    # A run in float32 takes over what a run in this dtype left.
    wider = reference.convert_chunk(got, 'float32')
    np.testing.assert_array_equal(wider['dyn/deter'], rounded.astype(np.float32))


def test_many_classes_need_wider_indices():
    onehot = np.eye(300, dtype=np.float32)[None, [299, 0]]
    got = reference.convert_chunk({'dyn/stoch': onehot}, 'float32')
    assert got['dyn/stoch'].dtype == np.int32
    assert got['dyn/stoch'].tolist() == [[299, 0]]
    assert reference.convert_chunk({'reward': np.ones(2)}, 'bfloat16').keys() == {'reward'}
