"""The driver: what a transition holds, when episodes reset, and how processes end."""

import contextlib
import functools
import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
import traceback

import numpy as np
import pytest

import embodied
from embodied.core import faults, warn
from embodied.core import workers as workers_module
from tests.doubles import CounterEnv, DoubleAgent, FaultyEnv

KEYS = {'step', 'episode', 'env', 'last', 'reward', 'is_first', 'is_last', 'is_terminal'}


def make_envs(count: int, **kwargs) -> list:
    return [functools.partial(CounterEnv, i, **kwargs) for i in range(count)]


def constant_policy(carry, obs: dict) -> tuple:
    count = len(obs['is_first'])
    return carry, {'action': np.full(count, 3, np.int32)}, {'out': np.full((count, 2), 7.0)}


def record(driver: embodied.Driver) -> list[list[dict]]:
    """Return lists, one per environment, to which transitions are appended as they come."""
    seen: list[list[dict]] = [[] for _ in range(len(driver))]
    driver.on_step(lambda transition, worker: seen[worker].append(transition))
    return seen


def test_transitions_hold_observation_action_output_and_logs():
    driver = embodied.Driver(make_envs(2, length=3), parallel=False)
    seen = record(driver)
    driver(constant_policy, steps=16)
    assert all(x.keys() == KEYS | {'log/step', 'action', 'out'} for each in seen for x in each)
    for worker, steps in enumerate(seen):
        assert [int(x['step']) for x in steps] == [0, 1, 2, 0, 1, 2, 0, 1]
        assert [int(x['episode']) for x in steps] == [0, 0, 0, 1, 1, 1, 2, 2]
        assert [int(x['env']) for x in steps] == [worker] * 8
        assert [bool(x['is_first']) for x in steps] == [x['step'] == 0 for x in steps]
        # The action of a transition follows its observation, and is zero after the last.
        assert [int(x['action']) for x in steps] == [3, 3, 0, 3, 3, 0, 3, 3]
        assert [int(x['last']) for x in steps] == [0, 3, 3, 0, 3, 3, 0, 3]
        assert all(x['out'].tolist() == [7, 7] for x in steps)


def test_batches_come_before_their_transitions():
    driver = embodied.Driver(make_envs(3), parallel=False)
    seen: list = []
    driver.on_step(lambda transition, worker: seen.append((transition, worker)))
    driver.on_batch(lambda batch, workers: seen.append((batch, list(workers))))
    driver(constant_policy, steps=6)
    assert [x[1] for x in seen] == [[0, 1, 2], 0, 1, 2] * 2
    for batch, workers in seen[::4]:
        assert batch['env'].tolist() == workers
    for place in (1, 2, 3):
        (batch, _), (transition, worker) = seen[0], seen[place]
        assert batch.keys() == transition.keys()
        for key, value in transition.items():
            np.testing.assert_array_equal(batch[key][worker], value)


def test_policy_gets_contiguous_batches_without_logs():
    driver = embodied.Driver(make_envs(3, image=True), parallel=False)
    batches = []

    def policy(carry, obs: dict) -> tuple:
        batches.append(obs)
        return constant_policy(carry, obs)

    driver(policy, steps=30)
    assert len(batches) == 10
    for obs in batches:
        assert obs.keys() == KEYS | {'image'}
        assert all(len(x) == 3 and x.flags['C_CONTIGUOUS'] for x in obs.values())
    assert batches[2]['image'].shape == (3, 8, 8, 3)
    assert batches[2]['image'].dtype == np.uint8
    assert batches[2]['step'].tolist() == [2, 2, 2]  # later steps did not write into it


def test_carry_comes_from_reset_and_goes_round():
    driver = embodied.Driver(make_envs(2), parallel=False)
    agent = DoubleAgent(driver.obs_space, driver.act_space)
    seen = record(driver)
    driver.reset(agent.init_policy)
    driver(agent.policy, steps=50)
    for steps in seen:
        assert len(steps) == 25
        # The double counts the steps of the episode in its carry and gives them out.
        assert [int(x['latent'][0]) for x in steps] == [int(x['step']) for x in steps]


def test_counts_steps_over_all_environments_and_ended_episodes():
    driver = embodied.Driver(make_envs(3, length=4), parallel=False)
    seen = record(driver)
    driver(constant_policy, steps=7)
    assert [len(x) for x in seen] == [3, 3, 3]
    driver(constant_policy, episodes=4)  # at steps 4 and 8 of each
    assert [len(x) for x in seen] == [8, 8, 8]
    driver(constant_policy)
    assert [len(x) for x in seen] == [8, 8, 8]


def test_reset_begins_new_episodes():
    driver = embodied.Driver(make_envs(2), parallel=False)
    seen = record(driver)
    driver(constant_policy, steps=6)
    driver.reset()
    driver(constant_policy, steps=4)
    assert [int(x['step']) for x in seen[1]] == [0, 1, 2, 0, 1]
    assert [int(x['last']) for x in seen[1]] == [0, 3, 3, 0, 3]


@pytest.mark.parametrize(
    ('act', 'out', 'message'),
    [
        ({'jump': np.zeros(2, np.int32)}, {}, r"\['jump'\], not \['action'\]"),
        ({}, {}, r"\[\], not \['action'\]"),
        ({'action': np.zeros(2), 'reset': np.zeros(2)}, {}, r"\['action', 'reset'\], not"),
        ({'action': np.zeros(3, np.int32)}, {}, r"'action' has the shape \(3,\), not \(2,\)"),
        ({'action': np.zeros((2, 1))}, {}, r"'action' has the shape \(2, 1\), not \(2,\)"),
        ({'action': np.zeros(2)}, {'step': np.zeros(2)}, 'share a key'),
    ],
)
def test_malformed_actions_and_outputs_are_errors(act: dict, out: dict, message: str):
    driver = embodied.Driver(make_envs(2), parallel=False)
    with pytest.raises(ValueError, match=message):
        driver(lambda carry, obs: (carry, act, out), steps=1)


def test_environments_must_have_the_same_spaces():
    makes = [CounterEnv, functools.partial(CounterEnv, image=True)]
    with pytest.raises(ValueError, match='spaces of env 1 differ'):
        embodied.Driver(makes, parallel=False)


def test_closing_closes_every_environment():
    envs = [CounterEnv(0), CounterEnv(1)]
    driver = embodied.Driver([lambda env=env: env for env in envs], parallel=False)
    driver.close()
    driver.close()
    assert [env.closed for env in envs] == [True, True]


@pytest.mark.parametrize('error', [embodied.UserError('bad value'), KeyError('bug')])
def test_error_in_this_process_surfaces_and_closes(error: Exception):
    class Failing(CounterEnv):
        def step(self, action: dict) -> dict:
            raise error

    envs = [CounterEnv(0), Failing(1)]
    driver = embodied.Driver([lambda env=env: env for env in envs], parallel=False)
    with pytest.raises(type(error)) as info:
        driver(constant_policy, steps=1)
    assert error in (info.value, info.value.__cause__)
    assert [env.closed for env in envs] == [True, True]


# One process per environment.


def pids_of(driver: embodied.Driver) -> list[int]:
    return [env.pid for env in driver._envs]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_give_the_same_transitions():
    runs = []
    for parallel, overlap in ((False, False), (True, False), (True, True), (False, True)):
        driver = embodied.Driver(make_envs(2, length=3, image=True), parallel, overlap=overlap)
        agent = DoubleAgent(driver.obs_space, driver.act_space)
        seen = record(driver)
        driver.reset(agent.init_policy)
        driver(agent.policy, steps=14)
        pids = pids_of(driver) if parallel else []
        assert all(alive(pid) for pid in pids)
        driver.close()
        assert not any(alive(pid) for pid in pids)
        runs.append([x for steps in seen for x in steps])
    assert [len(x) for x in runs] == [14] * 4
    for first, *others in zip(*runs, strict=True):
        for other in others:
            assert first.keys() == other.keys()
            for key in first:
                np.testing.assert_array_equal(first[key], other[key])
                assert first[key].dtype == other[key].dtype


def test_with_overlap_environments_step_during_the_callbacks(tmp_path: pathlib.Path):
    """The callbacks of a step wait for the step after it."""

    class Marking(CounterEnv):
        def step(self, action: dict) -> dict:
            obs = super().step(action)
            (tmp_path / f'{self.env}-{obs["step"]}').touch()
            return obs

    def wait(transition: dict, worker: int) -> None:
        marker = tmp_path / f'{worker}-{transition["step"] + 1}'
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(marker.exists())

    seen: list[bool] = []
    makes = [functools.partial(Marking, i) for i in range(2)]
    with contextlib.closing(embodied.Driver(makes, overlap=True)) as driver:
        driver.on_step(wait)
        driver(constant_policy, steps=6)
    assert seen == [True] * 6


def test_a_reset_drops_the_step_that_is_under_way():
    makes = make_envs(2, length=10)
    with contextlib.closing(embodied.Driver(makes, overlap=True)) as driver:
        seen = record(driver)
        driver(constant_policy, steps=6)
        driver.reset()
        driver(constant_policy, steps=4)
    for steps in seen:
        assert [int(x['step']) for x in steps] == [0, 1, 2, 0, 1]
        assert [int(x['episode']) for x in steps] == [0, 0, 0, 1, 1]


def test_environments_close_after_the_step_that_is_under_way_at_the_end(tmp_path, monkeypatch):
    """However long it takes: here longer than a process may take to end when it is asked."""
    monkeypatch.setattr(workers_module, 'GRACE', 0.5)

    class Slow(CounterEnv):
        def step(self, action: dict) -> dict:
            obs = super().step(action)
            if obs['step'] == 2:
                time.sleep(2)
            return obs

        def close(self) -> None:
            (tmp_path / 'closed').touch()

    driver = embodied.Driver([Slow], overlap=True)
    driver(constant_policy, steps=2)
    driver.close()
    assert (tmp_path / 'closed').exists()


@pytest.mark.parametrize('fault', ['raise', 'kill'])
def test_with_overlap_an_error_is_raised_by_the_step_that_has_it(fault: str):
    driver = embodied.Driver([CounterEnv, faulty(fault, env=1, at=3)], overlap=True)
    pids, seen = pids_of(driver), record(driver)
    driver(constant_policy, steps=6)
    assert [len(x) for x in seen] == [3, 3]
    assert not driver.failed
    with pytest.raises(RuntimeError, match='Env 1'):
        driver(constant_policy, steps=2)
    assert driver.failed
    assert [len(x) for x in seen] == [3, 3]
    assert not any(alive(pid) for pid in pids)


def failing_env(make_error) -> type:
    class Failing(CounterEnv):
        def step(self, action: dict) -> dict:
            if self.step_index == 2:
                raise make_error()
            return super().step(action)

    return Failing


def test_error_in_a_process_names_it_and_ends_all():
    failing = failing_env(lambda: ZeroDivisionError('of the third step'))
    driver = embodied.Driver([CounterEnv, functools.partial(failing, 1)])
    pids, seen = pids_of(driver), record(driver)
    with pytest.raises(RuntimeError, match='Env 1 failed in its process') as info:
        driver(constant_policy, steps=100)
    message = str(info.value)
    assert 'ZeroDivisionError: of the third step' in message
    assert 'in step\n' in message  # the frames of the process
    assert [len(x) for x in seen] == [3, 3]
    assert not any(alive(pid) for pid in pids)


def test_user_error_in_a_process_stays_one():
    driver = embodied.Driver([failing_env(lambda: embodied.UserError('Bad flag.'))])
    with pytest.raises(embodied.UserError, match=r'^Env 0, step 4: Bad flag\.$'):
        driver(constant_policy, steps=100)


def test_error_while_building_ends_all(tmp_path: pathlib.Path):
    class Marking(CounterEnv):
        def close(self) -> None:
            (tmp_path / 'closed').touch()

    def fail() -> CounterEnv:
        raise embodied.UserError('Package missing.')

    with pytest.raises(embodied.UserError, match=r'^Env 1: Package missing\.$'):
        embodied.Driver([Marking, fail])
    assert (tmp_path / 'closed').exists()


@pytest.mark.parametrize(('how', 'code'), [('kill', -9), ('exit', 3)])
def test_process_that_ends_is_reported(how: str, code: int):
    class Dying(CounterEnv):
        def step(self, action: dict) -> dict:
            if how == 'kill':
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)

    driver = embodied.Driver([Dying])
    (pid,) = pids_of(driver)
    with pytest.raises(RuntimeError, match=rf'Env 0: its process ended \(code {code}\)'):
        driver(constant_policy, steps=1)
    assert not alive(pid)


def test_an_exit_in_a_process_is_an_error_of_the_environment():
    class Leaving(CounterEnv):
        def step(self, action: dict) -> dict:
            sys.exit(0)

    driver = embodied.Driver([Leaving], restarts=5)
    with pytest.raises(faults.Failed, match=r'The environment called sys.exit\(0\)'):
        driver(constant_policy, steps=1)


def test_a_forked_child_that_leaves_a_step_is_no_second_environment(tmp_path: pathlib.Path):
    class Forking(CounterEnv):
        def step(self, action: dict) -> dict:
            if self.step_index == 1 and not os.fork():
                raise OSError('of the child')
            return super().step(action)

        def close(self) -> None:
            (tmp_path / f'{os.getpid()}').touch()

    with contextlib.closing(embodied.Driver([functools.partial(Forking, length=5)])) as driver:
        pids = {str(pid) for pid in pids_of(driver)}
        driver(constant_policy, steps=4)
    assert {x.name for x in tmp_path.iterdir()} == pids


def test_a_process_that_hangs_after_a_warning_is_noticed():
    class Hanging(CounterEnv):
        def step(self, action: dict) -> dict:
            warn.once('topic', 'before it hangs')
            time.sleep(1000)
            raise AssertionError

    driver = embodied.Driver([Hanging], timeout=1.0)
    with pytest.raises(RuntimeError, match=r'no answer for 1 s'):
        driver(constant_policy, steps=1)


def test_a_process_that_dies_is_noticed_while_its_forked_child_goes_on():
    class Dying(CounterEnv):
        def step(self, action: dict) -> dict:
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
            raise AssertionError

    driver = embodied.Driver([Dying])
    with pytest.raises(RuntimeError, match=r'Env 0: its process ended \(code -9\)'):
        driver(constant_policy, steps=1)


def test_what_an_environment_started_ends_with_it(tmp_path: pathlib.Path):
    fifo = tmp_path / 'fifo'
    os.mkfifo(fifo)

    class Parent(CounterEnv):
        def __init__(self):
            super().__init__()
            self.child = subprocess.Popen(['sh', '-c', f'exec 3>{fifo}; sleep 1000 & wait'])

        def close(self) -> None:
            """Forget about the child, as a careless environment would."""

    driver = embodied.Driver([Parent])
    with open(fifo, 'rb') as file:  # opens once the child has opened it
        driver.close()
        assert file.read() == b''  # returns once nobody holds the other end


def test_processes_end_with_a_driver_that_is_dropped():
    driver = embodied.Driver([CounterEnv])
    (pid,) = pids_of(driver)
    driver(constant_policy, steps=1)
    del driver
    gc.collect()
    assert not alive(pid)


@pytest.mark.parametrize('way', ['kill', 'return'])
def test_processes_end_with_their_parent(way: str):
    script = textwrap.dedent("""
        import subprocess
        import sys
        import numpy as np
        import embodied
        from tests.doubles import CounterEnv

        class Parent(CounterEnv):
            def __init__(self):
                super().__init__()
                self.child = subprocess.Popen(['sleep', '1000'])

        def main():
            driver = embodied.Driver([CounterEnv, Parent])
            driver.on_step(lambda transition, worker: None)
            policy = lambda carry, obs: (carry, {'action': np.zeros(2, np.int32)}, {})
            driver(policy, steps=2)
            print('ready', flush=True)
            sys.stdin.readline()

        if __name__ == '__main__':
            main()
    """)
    parent = subprocess.Popen(
        [sys.executable, '-c', script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=pathlib.Path(__file__).parents[2],
    )
    with parent:
        assert parent.stdout.readline() == b'ready\n'
        if way == 'kill':
            parent.kill()
        else:
            parent.stdin.write(b'\n')
            parent.stdin.close()
        # All of them, the sleeping one too, inherited stdout: this returns with the last.
        assert parent.stdout.read() == b''
        parent.wait()
        assert parent.returncode == (-9 if way == 'kill' else 0)


# Environments that fail and are made anew.


def faulty(fault, at: int = 5, **kwargs):
    return functools.partial(FaultyEnv, fault=fault, at=at, **kwargs)


@pytest.mark.parametrize(
    ('fault', 'at', 'parallel', 'reason'),
    [
        ('raise', 15, False, 'ZeroDivisionError: fault at 15'),
        ('raise', 15, True, 'ZeroDivisionError: fault at 15'),
        ('kill', 5, True, r'its process ended \(code -9\)'),
        ('hang', 5, True, r'no answer for 5 s \(run\.env_timeout\)'),
    ],
)
def test_an_env_that_fails_is_restarted_with_its_episode_cut(
    tmp_path: pathlib.Path, capsys, fault: str, at: int, parallel: bool, reason: str
):
    makes = [CounterEnv, faulty(fault, at, env=1, marker=str(tmp_path / 'marker'))]
    driver = embodied.Driver(makes, parallel, timeout=5.0, restarts=1)
    seen, pids = record(driver), pids_of(driver) if parallel else []
    driver(constant_policy, steps=44)
    assert [int(x['step']) for x in seen[0]] == [*range(10), *range(10), 0, 1]
    lives = [*range(at), *range(22 - at)]
    assert [int(x['step']) for x in seen[1]] == [x % 10 for x in lives]
    assert [bool(x['is_first']) for x in seen[1]] == [x['step'] == 0 for x in seen[1]]
    for x in seen[1]:
        assert x['is_last'] == x['is_terminal'] == (x['step'] == 9)
    out = capsys.readouterr().out
    assert re.search(r'^Env 1 is restarted \(1 of 1 an hour.*' + reason, out, re.M), out
    assert not any(alive(pid) for pid in pids[1:])
    driver.close()


def failing_elsewhere(attempt: int = 0) -> CounterEnv:
    """An environment that fails after its first episode, in each life in another line."""

    class Failing(CounterEnv):
        def step(self, action: dict) -> dict:
            if self.episode == 0 and self.done:
                text = f'raise ZeroDivisionError("fault of life {attempt}")'
                exec(compile('\n' * attempt + text, 'elsewhere.py', 'exec'))
            return super().step(action)

    return Failing(length=3)


@pytest.mark.parametrize('parallel', [False, True])
def test_restarts_are_limited_and_the_error_keeps_its_traceback(capsys, parallel: bool):
    driver = embodied.Driver([failing_elsewhere], parallel, restarts=2)
    seen = record(driver)
    with pytest.raises((ZeroDivisionError, RuntimeError), match='fault of life 2') as info:
        driver(constant_policy, steps=100)
    assert [int(x['step']) for x in seen[0]] == [0, 1, 2] * 3
    assert capsys.readouterr().out.count('is restarted') == 2
    text = str(info.value) if parallel else ''.join(traceback.format_exception(info.value))
    assert 'elsewhere.py' in text  # where it was raised


def test_restarts_count_within_an_hour(monkeypatch):
    now = 0.0
    monkeypatch.setattr(faults.time, 'monotonic', lambda: now)
    driver = embodied.Driver([faulty('raise', at=13)], parallel=False, restarts=1)
    for _ in range(5):
        driver(constant_policy, steps=13)
        now += faults.HOUR + 1
    driver(constant_policy, steps=13)
    with pytest.raises(ZeroDivisionError):
        driver(constant_policy, steps=13)


def test_an_env_that_fails_at_its_restart_counts_again(tmp_path: pathlib.Path):
    made = []

    def make() -> CounterEnv:
        made.append(len(made))
        if len(made) == 2:
            raise OSError('no licence')
        if len(made) == 3:
            raise OSError('no server')
        return FaultyEnv(fault='raise', at=12, marker=str(tmp_path / 'marker'))

    driver = embodied.Driver([make], parallel=False, restarts=3)
    seen = record(driver)
    driver(constant_policy, steps=14)
    assert [int(x['step']) for x in seen[0]] == [*range(10), 0, 1, 0, 1]
    assert len(made) == 4


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('parallel', [False, True])
def test_a_value_that_is_not_finite_is_named_and_not_passed_on(value, parallel: bool):
    make = lambda: embodied.wrappers.wrap(FaultyEnv(1, fault=value, at=3))
    driver = embodied.Driver([CounterEnv, make], parallel, restarts=9)
    seen = record(driver)
    expected = r"^Env 1, step 4: Observation 'reward' is outside of its space.*(nan|inf)"
    if value == -np.inf:  # the space of the reward reaches down to it
        driver(constant_policy, steps=8)
        assert seen[1][3]['reward'] == value
        driver.close()
        return
    with pytest.raises(embodied.UserError, match=expected):
        driver(constant_policy, steps=100)
    assert [len(x) for x in seen] == [3, 3]


def test_processes_end_with_their_parent_in_the_middle_of_a_step():
    script = textwrap.dedent("""
        import functools
        import numpy as np
        import embodied
        from tests.doubles import FaultyEnv

        if __name__ == '__main__':
            driver = embodied.Driver([functools.partial(FaultyEnv, fault='hang', at=1)])
            driver.on_step(lambda transition, worker: print('ready', flush=True))
            policy = lambda carry, obs: (carry, {'action': np.zeros(1, np.int32)}, {})
            driver(policy, steps=2)
    """)
    parent = subprocess.Popen(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        cwd=pathlib.Path(__file__).parents[2],
    )
    with parent:
        assert parent.stdout.readline() == b'ready\n'
        parent.kill()
        assert parent.stdout.read() == b''  # returns when nobody holds the other end
