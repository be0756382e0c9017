"""Which failures of environments end a run, and how they are told."""

import contextlib
import functools
import sys

import elements
import numpy as np
import pytest

import embodied
from embodied.core import faults, foreign
from embodied.core.faults import Failed, Faults, Lost
from embodied.run.parallel import envs
from tests.doubles import CounterEnv, FaultyEnv
from tests.run.test_driver import constant_policy

WAYS = {'here': {'parallel': False}, 'process': {}, 'python': {'python': sys.executable}}


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize(
    ('at', 'restarted', 'reason'),
    [(5, 0, 'before it had finished an episode'), (13, 1, 'twice in a row with the same')],
)
def test_an_error_of_the_code_ends_at_once_and_is_shown(capfd, way, at, restarted, reason):
    make = functools.partial(FaultyEnv, fault='raise', at=at)
    with contextlib.closing(embodied.Driver([make], restarts=9, **WAYS[way])) as driver:
        with pytest.raises((ZeroDivisionError, Failed), match=f'fault at {at}'):
            driver(constant_policy, steps=100)
        assert driver.failed
    out = capfd.readouterr().out
    assert out.count('Env 0 is restarted (1 of 9 an hour') == restarted
    assert out.count('Traceback (most recent call last)') == restarted
    assert out.count('doubles.py') == restarted
    assert f'Env 0 is not restarted: it failed {reason}' in out


def test_an_environment_in_parallel_is_judged_alike(capsys):
    args = elements.Config(env_restarts=9, env_timeout=0.0)
    for at, restarted in ((5, 0), (13, 1)):
        env = envs._Env(functools.partial(FaultyEnv, fault='raise', at=at), 2, args, 0)
        steps: list[int] = []
        with pytest.raises(ZeroDivisionError, match=f'fault at {at}'):
            play(env, steps)
        assert steps == [x % 10 for x in range(at)] * (1 + restarted)
        assert capsys.readouterr().out.count('Env 2 is restarted') == restarted


def play(env, steps: list[int]) -> None:
    act = env.first()
    while len(steps) < 100:
        steps.append(int(env.step(act)['step']))
        act = {'action': np.int32(0), 'reset': np.bool_(False)}


def test_a_value_outside_of_its_space_is_named_in_parallel_as_in_train():
    args = elements.Config(env_restarts=9, env_timeout=0.0)
    make = lambda: embodied.wrappers.wrap(FaultyEnv(fault=np.nan, at=3))
    env = envs._Env(make, 7, args, 0)
    act = env.first()
    for _ in range(3):
        env.step(act)
    with pytest.raises(embodied.UserError, match=r"^Env 7, step 4: Observation 'reward' is"):
        env.step(act)


def error(place: int, text: str = 'why') -> Failed:
    lines = [
        'Env 0 failed:',
        'Traceback',
        f'  File "a.py", line {place}, in step',
        f'E: {text}',
    ]
    return Failed('\n'.join(lines))


def test_what_is_in_a_row(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(faults.time, 'monotonic', lambda: now)
    judge = Faults(100)
    judge.finished(0)
    judge.finished(1)
    for place in (1, 2, 1, 2):  # never the same twice
        judge.add(0, error(place))
    judge.add(1, error(2))  # of another environment
    judge.add(0, Lost('killed'))
    assert capsys.readouterr().out.count('Traceback') == 2  # each is shown once
    now += faults.HOUR
    judge.add(0, error(2))
    with pytest.raises(Failed):
        judge.add(0, error(2, 'another message'))
    judge.add(5, Lost('killed'))  # before its first episode
    with pytest.raises(Failed):
        judge.add(5, error(3))


@pytest.mark.parametrize('way', WAYS)
def test_texts_of_megabytes_are_cut(capfd, way):
    make = functools.partial(Wordy, False)
    driver = embodied.Driver([make], restarts=9, **WAYS[way])
    with contextlib.closing(driver), pytest.raises((RuntimeError, ValueError)) as info:
        driver(constant_policy, steps=100)
    assert len(str(info.value)) < 3 * faults.LONGEST
    assert 'in step' in str(info.value)
    driver = embodied.Driver([functools.partial(Wordy, True)], restarts=9, **WAYS[way])
    with contextlib.closing(driver), pytest.raises(embodied.UserError, match=r'^Env 0') as info:
        driver(constant_policy, steps=100)
    assert len(str(info.value)) < 2 * faults.LONGEST
    out, err = capfd.readouterr()
    assert len(out + err) < 10 * faults.LONGEST


class Wordy(CounterEnv):
    def __init__(self, mistake: bool):
        super().__init__(length=3)
        self._mistake = mistake

    def step(self, action: dict) -> dict:
        if self.episode == 1:
            text = 'words\n' * 1_000_000
            raise embodied.UserError(text) if self._mistake else ValueError(text)
        return super().step(action)


def test_a_probe_is_told_as_its_process_says(capfd):
    """`foreign.make` gives an environment that raises what its process said."""
    with pytest.raises(Failed, match='ZeroDivisionError'):
        foreign.make(sys.executable, broken, 0)


def broken(index: int) -> CounterEnv:
    return CounterEnv(length=1 // index)
