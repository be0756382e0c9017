"""Every number of the configuration has bounds, and values outside of them are refused."""

import math

import pytest

from dreamerv3 import bounds
from dreamerv3 import config as configs
from embodied import UserError

DEFAULTS = configs.blocks()['defaults']


def is_number(value):
    value = value[0] if isinstance(value, list) else value
    return isinstance(value, (int, float)) and not isinstance(value, bool)


NUMBERS = [key for key, value in DEFAULTS.items() if is_number(value)]
INTERVALS = {key: bounds.interval(key) for key in NUMBERS}


def outside(key):
    """Numbers that lie outside of the bounds of a key, as flags."""
    interval, whole = INTERVALS[key], not isinstance(leaf(key), float)
    for end, inside, away in (
        (interval.low, interval.low_in, -1),
        (interval.high, interval.high_in, 1),
    ):
        if math.isfinite(end):
            yield str(int(end) + away) if whole else str(end + away * inside)
        elif not inside and not whole:
            yield str(end)


def leaf(key):
    return DEFAULTS[key][0] if isinstance(DEFAULTS[key], list) else DEFAULTS[key]


def accepted(key, value):
    bounds.check({key: value}, DEFAULTS)


def test_every_number_has_bounds_and_no_other_key():
    assert len(NUMBERS) > 100
    for key in DEFAULTS:
        assert (bounds.interval(key) is not None) == (key in NUMBERS), key


@pytest.mark.parametrize('name', ['defaults', *configs.block_names()])
def test_every_block_lies_within(name):
    config = configs.load([] if name == 'defaults' else [name])
    bounds.check(config.flat, DEFAULTS)


def test_every_number_outside_of_its_bounds_is_refused_by_its_name():
    count = 0
    for key in NUMBERS:
        for text in outside(key):
            count += 1
            value = configs.load(overrides={key: text}).flat[key]
            with pytest.raises(UserError) as caught:
                accepted(key, value)
            message = str(caught.value)
            assert message.startswith(f'--{key} must be '), message
            assert ', such as ' in message, message
    assert count > 100


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('--agent.opt.beta2 1.5', 'at least 0 and less than 1, such as 0.999; found 1.5.'),
        ('--agent.opt.beta1 1', 'at least 0 and less than 1, such as 0.9; found 1.0.'),
        ('--agent.imag_loss.lam 2', 'at least 0 and at most 1, such as 0.95; found 2.0.'),
        ('--agent.policy.unimix 1.5', 'at least 0 and at most 1, such as 0.01; found 1.5.'),
        ('--agent.policy.minstd 0', 'more than 0, such as 0.1; found 0.0.'),
        ('--agent.retnorm.rate 0', 'more than 0 and at most 1, such as 0.01; found 0.0.'),
        ('--agent.retnorm.perchi 101', 'at least 0 and at most 100, such as 95; found 101.0.'),
        ('--agent.enc.simple.mults 2,0', 'at least 1, such as 2; found 0.'),
        ('--jax.train_devices -1', 'at least 0, such as 0; found -1.'),
        ('--run.train_ratio inf', 'finite, such as 32; found inf.'),
        ('--agent.opt.agc 1e39', 'finite, such as 0.3; found 1e+39.'),
        ('--env.dmc.camera -2', 'at least -1, such as -1; found -2.'),
    ],
)
def test_the_sentence_names_bounds_and_an_example(line, message):
    with pytest.raises(UserError) as caught:
        configs.resolve(line.split())
    assert str(caught.value) == f'{line.split()[0]} must be {message}'


@pytest.mark.parametrize(
    ('key', 'value'), [('agent.opt.beta2', 1 - 1e-9), ('agent.opt.eps', 1e-60)]
)
def test_what_float32_rounds_to_an_open_end_is_outside(key, value):
    with pytest.raises(UserError, match=key):
        accepted(key, value)


@pytest.mark.parametrize(
    ('key', 'value'),
    [
        ('run.train_ratio', -1.0),
        ('run.train_ratio', 0.0),
        ('run.duration', math.inf),
        ('run.save_every', -1.0),
        ('run.log_every', math.inf),
        ('run.env_timeout', 0.0),
        ('run.actor_batch', -1),
        ('replay.prio.initial', math.inf),
        ('agent.opt.lr', 0.0),
        ('agent.opt.beta1', 0.0),
        ('agent.opt.agc', 0.0),
        ('agent.policy.unimix', 0.0),
        ('agent.enc.simple.layers', 0),
        ('agent.dec.simple.bspace', 0),
        ('agent.value.bins', 2),
        ('replay_context', 0),
        ('seed', 9007199254740993),
    ],
)
def test_values_that_mean_something_are_accepted(key, value):
    accepted(key, value)


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('--agent.policy.minstd 2', ('minstd 2', 'maxstd 1')),
        ('--agent.retnorm.perclo 95', ('perclo 95', 'perchi 95')),
        ('--agent.opt.schedule cosine', ('schedule cosine', 'anneal (0)', 'warmup (1000)')),
        ('--agent.policy_dist_cont gauss', ('policy_dist_cont takes', 'normal_logstd')),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(line, words):
    with pytest.raises(UserError) as caught:
        configs.resolve(line.split())
    assert all(word in str(caught.value) for word in words)


def test_equal_deviations_and_a_schedule_that_ends_are_accepted():
    configs.resolve(['--agent.policy.minstd', '1'])
    configs.resolve(['--agent.opt.schedule', 'linear', '--agent.opt.anneal', '1001'])


@pytest.mark.parametrize('text', ['0, 1', '[0 1]', '[a, 1]', ''])
def test_a_broken_rule_shows(text):
    with pytest.raises(ValueError, match=r'interval|could not convert'):
        bounds.Interval.parse(text)
