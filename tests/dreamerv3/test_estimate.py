"""What a model is said to need, against recorded parameter counts and by hand."""

import itertools
import json

import elements
import numpy as np
import pytest

from dreamerv3 import config as configs
from dreamerv3 import estimate, needs
from embodied.jax.runtime import names
from tests.dreamerv3 import golden

KINDS = {'crafter-like': 'image_disc', 'proprio-like': 'vector_cont'}
IMAGES = golden.spaces('image_disc')


def test_parameters_of_all_sizes_are_exact():
    recorded = json.loads((golden.FOLDER / 'param_counts.json').read_text())
    for row, counts in recorded.items():
        kind, size = row.split('/')
        found = estimate.estimate(configs.load([size]), *golden.spaces(KINDS[kind]))
        assert found.params == {k: v for k, v in counts.items() if k != 'total'}, row


@pytest.mark.parametrize('name', ['options', 'strided', 'mixed'])
def test_parameters_with_options_are_close(name):
    file = golden.Golden(name)
    config = configs.load([], file.meta['overrides'])
    found = estimate.estimate(config, file.obs_space, file.act_space)
    whole = sum(x.size for x in names.flatten(file.template.model).values())
    assert sum(found.params.values()) == pytest.approx(whole, rel=0.02)


def test_a_head_by_hand():
    config = configs.load(['debug'], {'agent.conhead.layers': 2})
    con = estimate.costs(config.agent, *IMAGES)['con']
    feat, units = 8 + 2 * 4, 8
    assert con.macs == feat * units + units * units + units
    assert con.params == con.macs + units + units + 1 + 2 * units  # biases, scales of norms
    assert con.values == 2 * units + 2 * units + 1


def test_needs_rise_with_the_size_the_batch_and_the_dtype():
    found = [estimate.estimate(configs.load([name]), *IMAGES) for name in needs.SIZES]
    for a, b in itertools.pairwise(found):
        assert a.bytes < b.bytes
        assert a.flops < b.flops
    small, wide = (
        estimate.estimate(configs.load(['size12m'], flags), *IMAGES)
        for flags in ({'batch_size': 1}, {'jax.compute_dtype': 'float32'})
    )
    assert small.bytes < found[1].bytes < wide.bytes
    assert small.flops * 16 == found[1].flops == wide.flops


def test_a_block_on_top_keeps_the_rest():
    config = configs.with_block(configs.load(['debug'], {'seed': 5}), 'size12m')
    assert (config.agent.dyn.rssm.deter, config.agent.policy.units) == (2048, 256)
    assert (config.seed, config.batch_size, config.agent.dyn.rssm.stoch) == (5, 8, 2)


def test_vectors_alone():
    spaces = {'vector': elements.Space(np.float32, 3), 'reward': elements.Space(np.float32)}
    found = estimate.estimate(
        configs.load(['debug'], {'agent.enc.simple.layers': 0}),
        spaces,
        {'action': elements.Space(bool)},
    )
    assert found.params['enc'] == 0
    assert found.params['pol'] == 16 * 8 + 8 + 8 + 8 * 2 + 2


@pytest.mark.parametrize(('classes', 'each'), [(18, 18), (256, 256), (20000, 32)])
def test_draws_of_many_actions_count_no_matrix_of_classes(classes, each):
    spaces = {'vector': elements.Space(np.float32, 3), 'reward': elements.Space(np.float32)}
    action = {'action': elements.Space(np.int32, (), 0, classes)}
    config = configs.load(['debug'])
    draw = estimate.costs(config.agent, spaces, action)['draw']
    assert (draw.params, draw.macs, draw.values) == (0, classes * each, 3 * classes)
    core = [estimate.costs(config.agent, spaces, x)['core'].values for x in (action, {})]
    assert core[0] - core[1] >= classes  # of the one-hot action
    found = estimate.estimate(config, spaces, action)
    logits = config.batch_size * config.batch_length * 16 * classes * 2  # bytes, imagined
    assert logits < found.bytes < 10 * logits + 1e7


@pytest.mark.parametrize(
    ('kind', 'size', 'mib'),
    [
        ('image_disc', 'size1m', 921),
        ('image_disc', 'size12m', 3173),
        ('vector_cont', 'size12m', 942),
    ],
)
def test_memory_is_that_of_the_compiled_update_and_some_room(kind, size, mib):
    """MiB of temporaries and arguments in float32, by benchmarks/train.py --count."""
    config = configs.load([size], {'jax.compute_dtype': 'float32'})
    found = estimate.estimate(config, *golden.spaces(kind)).bytes
    assert mib * 2**20 < found < 2 * mib * 2**20
