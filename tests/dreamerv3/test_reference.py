"""The map between our names and the reference's is one to one, on all recorded names."""

import pytest

from dreamerv3 import reference
from embodied.jax import names

from . import golden


@pytest.mark.parametrize('name', golden.FILES)
def test_all_names_map_both_ways(name):
    file = golden.Golden(name)
    theirs = file.part('params0')
    ours = {reference.from_reference(k): v for k, v in theirs.items()}
    template = names.flatten(file.template)
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
