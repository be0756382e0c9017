"""What a start says of memory and time, and when it stops."""

import re

import jax
import numpy as np
import pytest

from dreamerv3 import config as configs
from dreamerv3 import estimate, machine, needs
from tests.dreamerv3 import golden

IMAGES = golden.spaces('image_disc')


def describe(*blocks, free=64e9, rate=None, **flags):
    text = needs.describe(configs.load(blocks, flags), *IMAGES, free, rate)
    assert len(text.splitlines()) <= 2
    return text


def test_on_a_fast_cpu_the_default_may_fit():
    text = describe('size1m', rate=1e14)
    assert '0.688M parameters' in text
    assert text.splitlines()[0].endswith('s per update; 64.0 GB are free')
    assert text.splitlines()[1].startswith('largest size block that fits: --configs size400m')


@pytest.mark.parametrize(
    ('rate', 'size'), [(1e11, 'size1m'), (1e12, 'size12m'), (6e12, 'size100m')]
)
def test_a_slow_cpu_gets_a_smaller_size(rate, size):
    text = describe(rate=rate)
    assert '166M parameters' in text
    assert f'largest size block that fits: --configs {size} (' in text


def test_a_cpu_with_few_optimisations_is_slower():
    seconds = [
        float(re.search(r'and (\S+) s per update;', describe('size1m', rate=1e11, **flags))[1])
        for flags in ({}, {'jax.debug': True})
    ]
    assert seconds[1] > 1.3 * seconds[0]


def test_on_a_very_slow_cpu_the_fastest_is_named():
    assert 'fastest size block that fits: --configs size1m (' in describe(rate=1e8)


def test_an_accelerator_hears_of_it_only_where_memory_is_short():
    assert describe(free=None) == describe(free=80e9) == ''
    text = describe(free=6e9)
    assert 'per update' not in text
    assert '6.0 GB are free: too little\nlargest size block that fits: --configs size' in text


def test_where_nothing_fits_that_is_said():
    text = describe(free=1e6)
    assert text.splitlines()[1].startswith('no size block fits here')
    assert '--batch_size' in text


def refusal(*blocks, free=64e9, rate=None, **flags):
    text = needs.refusal(configs.load(blocks, flags), *IMAGES, free, rate)
    assert len(text.splitlines()) <= 1
    return text


def test_what_fits_and_is_quick_starts():
    assert refusal('size1m', rate=1e11) == ''
    assert refusal('size12m', rate=1e11) == ''  # a minute per update: slow, but one may want it
    assert refusal(free=80e9) == refusal(free=None) == ''
    assert 'too little' not in describe('size12m', rate=1e11)


def test_too_little_memory_is_refused_with_a_block_that_fits():
    text = refusal('size1m', free=6e9, rate=1e11, batch_size=256)
    assert 'GB of memory, too much for the 6.0 GB that are free' in text
    assert 'per update' not in text
    text = refusal(free=6e9)
    assert re.search(r'Add the block size\d+m to --configs', text)
    assert '--force True' in text
    assert 'Add the block debug' in refusal(free=1e6)


def test_minutes_per_update_are_refused_with_a_faster_block():
    text = refusal(rate=1e11)
    assert 's per update on this CPU. Add the block size1m to --configs' in text
    assert 'memory' not in text


def test_where_no_size_is_quick_enough_the_smallest_model_is_named():
    assert 'Add the block debug' in refusal('size1m', rate=1e9)


def test_both_are_said_together():
    assert ', and takes about ' in refusal(free=6e9, rate=1e11)


def duration(*blocks, rate=1e11, **flags):
    return needs.duration(configs.load(blocks, flags), *IMAGES, rate)


def test_how_long_the_run_takes_by_hand():
    own = estimate.estimate(configs.load(['size1m']), *IMAGES)
    seconds = 1000 * needs.SLOWDOWN * own.flops / 1e11  # 1,000 updates
    text = duration('size1m', **{'run.steps': 1024 * 1000 / 32, 'run.train_ratio': 32})
    assert 'this run: 32,000 steps with 1,000 updates take about ' in text
    found = float(re.search(r'about (\S+) (?:hours|min)', text)[1])
    assert found == pytest.approx(seconds / (3600 if 'hours' in text else 60), rel=0.2)


def test_how_long_it_takes_where_that_is_given_or_unknown():
    assert duration('size1m', **{'run.duration': 7200}) == 'this run: ends after 2 hours'
    assert duration('size1m', **{'run.train_ratio': -1}) == ''
    assert duration('size1m', rate=None) == ''
    never = duration('debug', **{'run.steps': 8, 'run.train_ratio': 0})
    assert 'with 0 updates take about' in never


def test_the_second_example_of_the_readme_runs_on_any_cpu():
    text = (golden.FOLDER.parents[1] / 'README.md').read_text(encoding='utf-8')
    (line,) = re.findall(r'^python dreamerv3/main.py (.*--jax.platform cpu)$', text, re.M)
    config = configs.resolve([*line.split(), '--jax.compute_dtype', 'float32'])
    assert needs.refusal(config, *IMAGES, 2.5e9, 1e10) == ''


class Device:
    """An accelerator with a given statement about its memory."""

    platform = 'gpu'

    def __init__(self, stats):
        self.memory_stats = lambda: stats


def test_free_memory_of_devices():
    assert machine.free_memory(Device({'bytes_limit': 100, 'bytes_in_use': 30})) == 70
    assert machine.free_memory(Device(None)) is None
    assert machine.free_memory(jax.devices('cpu')[0]) > 1e6


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_rate_of_a_product_is_a_number(dtype):
    rate = machine.matmul_rate(jax.devices('cpu')[0], dtype, repeats=1)
    assert np.isfinite(rate)
    assert rate > 0
