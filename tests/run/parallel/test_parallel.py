"""Parallel runs as processes: they train, end, resume, and go on when parts are killed."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import embodied
from embodied.checkpoint import checkpoint
from embodied.core import rpc
from embodied.replay import mapped
from embodied.run import lock

ROOT = pathlib.Path(__file__).parents[3]
LIMIT = 60  # seconds until a test gives up
TRAIN = {'steps': 1500, 'train_ratio': 8.0}


def may_open(files):
    """Return what begins a command whose program may have so many open files at once.

    The limit of this process, which may have more of them already, does not change.
    """
    return ['sh', '-c', f'ulimit -Sn {files}; exec "$@"', 'sh'] if files else []


class Part:
    """One running program of the doubles. files: how many it may have open at once."""

    def __init__(self, name, logdir, files=None, **flags):
        self.log = logdir.parent / f'{logdir.name}-{name}.txt'
        with self.log.open('a') as log:
            self.process = subprocess.Popen(
                [*may_open(files), *self.command(name), repr({'logdir': str(logdir), **flags})],
                cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def command(self, name):
        return [sys.executable, '-W', 'error', '-m', 'tests.run.parallel.parts', name]

    def end(self, code=0):
        found = self.process.wait(LIMIT)
        assert found == code, self.text
        return self.text

    @property
    def text(self):
        return self.log.read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.end()


@pytest.fixture
def start(tmp_path):
    """Starts parts, and ends by force what a failed test leaves."""
    parts = []

    def start(name='combined', logdir=tmp_path / 'run', **flags):  # `files` as in Part
        parts.append(Part(name, logdir, **flags))
        return parts[-1]

    yield start
    for part in parts:
        part.process.kill()
        part.process.wait()
    for path in (tmp_path / 'run' / 'pids').glob('*'):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


def until(condition, what):
    """Wait until a condition holds, and return what it returns."""
    wait = threading.Event()
    for _ in range(LIMIT * 20):
        with contextlib.suppress(json.JSONDecodeError):  # read while it was rewritten
            if found := condition():
                return found
        wait.wait(0.05)
    raise AssertionError(f'{what} did not happen within {LIMIT} s')


def lines(logdir, name='metrics.jsonl'):
    path = logdir / name
    text = path.read_text() if path.exists() else ''
    return [json.loads(x) for x in text.splitlines() if x.endswith('}')]


def latest(logdir, key):
    """The last value of a metric, 0 before the first."""
    return next((x[key] for x in reversed(lines(logdir)) if key in x), 0)


def pid(logdir, name):
    path = logdir / 'pids' / name
    return int((path.read_text() if path.exists() else '') or 0)  # empty while it is written


def stored(logdir, folder='replay'):
    """Steps in the chunk files, one row (life, env, episode, step) each."""
    keys = ('life', 'env', 'episode', 'step')
    rows = [np.zeros((0, len(keys)), np.int32)]
    for path in (logdir / folder).glob('*.npz'):
        with np.load(path) as data:
            rows.append(np.stack([data[k] for k in keys], -1))
    for path in (logdir / folder).glob('*.chunk'):
        chunk = mapped.MappedChunk(path, bytes(16), '', mapped.Maps())
        rows.append(np.stack([chunk.arrays[k][: chunk.length] for k in keys], -1))
    return np.concatenate(rows)


def check_stored(logdir, least):
    """No step is there twice; the steps of an episode have no gap."""
    rows = stored(logdir)
    assert len(rows) >= least
    found, counts = np.unique(rows, axis=0, return_counts=True)
    assert (counts == 1).all(), found[counts > 1]


def all_ended(logdir):
    pids = [int(x.read_text()) for x in (logdir / 'pids').iterdir()]
    until(lambda: not any(pathlib.Path(f'/proc/{x}').exists() for x in pids), 'the end of all')


def steps(logdir):
    return {
        name: int(checkpoint.read(logdir / 'ckpt' / name, ['step'])['step'])
        for name in ('agent', 'logger')
    }


@pytest.mark.parametrize(
    'flags',
    [{}, {'agent_process': True, 'eval_envs': 2, 'actor_threads': 2, 'actor_batch': 2}],
    ids=['plain', 'apart'],
)
def test_a_run_ends_saves_and_resumes(start, tmp_path, flags):
    logdir = tmp_path / 'run'
    start(**TRAIN, **flags).end()
    all_ended(logdir)
    found = steps(logdir)
    assert 1500 <= found['agent'] == found['logger'] < 1503
    updates = checkpoint.read(logdir / 'ckpt' / 'agent', ['agent'])['agent']['updates']
    assert updates > 1000
    check_stored(logdir, 1500)
    assert len(stored(logdir)) == found['agent']  # all that was counted, and nothing else
    # The mean since the last log: the very end was logged as well.
    assert 0.9 * updates < latest(logdir, 'train/opt/updates') <= updates
    assert latest(logdir, 'report/loss/double') > 0
    scores = lines(logdir, 'scores.jsonl')
    assert all(x['episode/score'] == 9 for x in scores)
    ended = int((stored(logdir)[:, 3] == 9).sum())  # of ten steps each
    assert latest(logdir, 'parallel/ep_ends') == ended >= 140
    assert ended / 2 <= len(scores) <= ended  # those that end in one batch share a line
    if flags:
        assert latest(logdir, 'eval/episode/score') == 9
        assert latest(logdir, 'eval/loss/double') > 0
        assert len(stored(logdir, 'replay_eval')) > 100
    text = start(**{**TRAIN, 'steps': 1800}, **flags).end()
    found = steps(logdir)
    assert 1800 <= found['agent'] == found['logger'] < 1803, text
    agent = checkpoint.read(logdir / 'ckpt' / 'agent', ['agent'])['agent']
    assert updates + 200 < agent['updates'] < updates + 400  # no burst
    check_stored(logdir, 1800)
    seen = [x['step'] for x in lines(logdir)]
    assert seen == sorted(seen)


@pytest.mark.parametrize('eval_envs', [0, 2])
@pytest.mark.parametrize(('ratio', 'steps'), [(1.0, 1200), (32.0, 700)])
def test_the_ratio_of_replayed_to_env_steps_is_met(start, tmp_path, ratio, steps, eval_envs):
    logdir = tmp_path / 'run'
    flags = {'eval_envs': eval_envs, 'log_every': 0.1, 'report_every': 0.0}
    start(steps=steps, train_ratio=ratio, **flags).end()
    rows = [x for x in lines(logdir) if 'replay/samples' in x]
    first = next(i for i, x in enumerate(rows) if x['replay/samples'])
    replayed = 4 * sum(x['replay/samples'] for x in rows)  # batch_length
    # The first sample came after the log before and no later than the first that shows it.
    least = replayed / (rows[-1]['step'] - rows[first - 1]['step'] * (first > 0))
    most = replayed / (rows[-1]['step'] - rows[first]['step'])
    assert least <= 1.05 * ratio
    assert most >= 0.95 * ratio
    assert most - least < 0.2 * ratio  # or this says little


def test_ratio_zero_samples_nothing_and_below_zero_never_waits(start, tmp_path):
    logdir = tmp_path / 'zero'
    start(logdir=logdir, steps=300, train_ratio=0.0, report_every=0.0).end()
    assert steps(logdir)['agent'] >= 300
    rows = [x for x in lines(logdir) if 'replay/samples' in x]
    assert sum(x['replay/samples'] for x in rows) == 0
    logdir = tmp_path / 'free'
    start(logdir=logdir, steps=600, train_ratio=-1.0).end()
    rows = [x for x in lines(logdir) if 'replay/samples' in x]
    first = next(i for i, x in enumerate(rows) if x['replay/samples'])
    assert all(x['limiter/sample_wait_frac'] < 0.5 for x in rows[first + 1 :])
    assert all(x['limiter/insert_wait_frac'] < 0.5 for x in rows[first + 1 :])


METRICS = [
    'train/loss/double', 'report/loss/double', 'episode/score', 'epstats/reward_rate',
    'epstats/log/step/max', 'replay/items', 'replay/replay_ratio', 'replay_eval/items',
    'fps/policy', 'fps/train', 'fps/env', 'parallel/ep_starts', 'parallel/ep_ends',
    'parallel/ep_abandoned', 'parallel/ep_states', 'limiter/insert_wait_dur',
    'limiter/insert_wait_count', 'limiter/insert_wait_frac', 'limiter/sample_wait_dur',
    'limiter/sample_wait_count', 'limiter/sample_wait_frac', 'timer/train/count',
    'client/actor_replay/sendrate', 'client/replay_logger/sendrate',
    'server/replay/add_batch/calls', 'server/actor/act/calls', 'server/logger/numrecv',
]  # fmt: skip


def test_a_signal_ends_all_and_the_dashboards_find_their_metrics(start, tmp_path):
    logdir = tmp_path / 'run'
    part = start(steps=1e9, train_ratio=8.0)
    until(lambda: latest(logdir, 'report/loss/double') and part.process.poll() is None, 'a run')
    missing = lambda: [x for x in METRICS if not any(x in row for row in lines(logdir))]
    until(lambda: not missing(), f'all metrics {missing()}')
    text = part.stop()
    assert 'Stopped and saved at step' in text
    all_ended(logdir)
    found = steps(logdir)
    assert found['agent'] == found['logger'] > 0
    assert len(stored(logdir)) == found['agent']


def test_an_environment_that_misuses_its_process_is_started_anew(start, tmp_path):
    """It ends a child of its own, which ends nothing else, and exits, which ends no run."""
    text = start(fail='guest0', **TRAIN).end()
    assert f'child ended {-signal.SIGTERM}' in text
    assert 'The environment called sys.exit(0).' in text
    assert 'Env 0 is restarted (1 of 10 an hour' in text
    check_stored(tmp_path / 'run', least=TRAIN['steps'])


def test_an_environment_that_hangs_is_started_anew(start, tmp_path):
    text = start(fail='hang0', env_timeout=2.0, **TRAIN).end()
    assert 'Env 0: no answer for 2 s (run.env_timeout).' in text
    check_stored(tmp_path / 'run', least=TRAIN['steps'])


def test_a_signal_that_is_sent_twice_at_once_saves(start, tmp_path):
    part = start(steps=1e9, train_ratio=8.0)
    until(lambda: latest(tmp_path / 'run', 'train/opt/updates'), 'training')
    part.process.send_signal(signal.SIGTERM)
    part.process.send_signal(signal.SIGHUP)
    assert 'Stopped and saved' in part.stop()


def test_nothing_is_left_when_the_run_is_killed(start, tmp_path):
    logdir = tmp_path / 'run'
    part = start(steps=1e9, train_ratio=8.0, agent_process=True)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    part.process.kill()
    part.process.wait()
    all_ended(logdir)
    start(steps=latest(logdir, 'train/opt/updates') + 1000, train_ratio=8.0).end()
    check_stored(logdir, 1000)


def kill(part, logdir, name):
    """Kill a part of a run, and wait until it is back and the run goes on."""
    victim = until(lambda: pid(logdir, name), f'a pid of {name}')
    os.kill(victim, signal.SIGKILL)
    until(lambda: pid(logdir, name) != victim, f'the restart of {name}')
    count, restarted = len(lines(logdir)), time.monotonic()
    going_on = lambda key: any(key in x for x in lines(logdir)[count:])
    for key in ('train/opt/updates', 'limiter/avail', 'fps/env', 'episode/score'):
        try:
            until(lambda: part.process.poll() is None and going_on(key), f'{key} after {name}')  # noqa: B023
        except AssertionError as error:
            raise AssertionError(f'{error}:\n{part.text}') from None
    assert time.monotonic() - restarted < 20
    assert part.process.poll() is None, part.text


def check_after_kills(logdir, kills, storage, text):
    """What was counted is what the envs did, and nothing is stored twice."""
    found = steps(logdir)
    assert found['agent'] == found['logger'], text
    rows = stored(logdir)
    check_stored(logdir, 100)
    # An agent may be killed before it told the logger of what the replay has.
    assert len(rows) <= found['agent'] + 2 * kills
    if storage == 'disk':  # at most what was under way at a kill is missing
        assert found['agent'] - len(rows) < 20 * kills
    seen = [x['step'] for x in lines(logdir)]
    assert seen == sorted(seen)


@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_each_part_is_killed_in_turn_and_the_run_goes_on(start, tmp_path, storage):
    logdir = tmp_path / 'run'
    flags = {'agent_process': True, 'storage': storage, 'train_ratio': 8.0}
    part = start(steps=1e9, eval_envs=1, **flags)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    names = ('replay', 'env1', 'logger', 'agent', 'env3')
    for name in names:
        kill(part, logdir, name)
    text = part.stop()
    assert len([x for x in text.splitlines() if 'It is restarted (1 of 10' in x]) == len(names)
    all_ended(logdir)
    check_after_kills(logdir, len(names), storage, text)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('storage', ['ram', 'disk'])
def test_parts_are_killed_thirty_times(start, tmp_path, storage):
    logdir = tmp_path / 'run'
    flags = {'agent_process': True, 'storage': storage, 'train_ratio': 8.0, 'env_restarts': 99}
    part = start(steps=1e9, **flags)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    rng = np.random.default_rng(0)
    for name in rng.choice(['replay', 'env0', 'env2', 'logger', 'agent'], 30).tolist():
        kill(part, logdir, name)
    text = part.stop()
    all_ended(logdir)
    check_after_kills(logdir, 30, storage, text)


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_kills_of_the_replay_lose_no_step(start, tmp_path):
    """While its inserts wait for the limiter; the steps are those that the agent counted."""
    logdir = tmp_path / 'run'
    part = start(steps=1e9, envs=4, storage='disk', train_ratio=100.0, env_restarts=99)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    for _ in range(5):
        kill(part, logdir, 'replay')
    text = part.stop()
    all_ended(logdir)
    check_stored(logdir, 50)
    counted, rows = steps(logdir)['agent'], len(stored(logdir))
    print(f'5 kills, {counted} steps counted, {rows} stored')
    assert rows == counted, text


@pytest.mark.parametrize(
    'order',
    ['envs replay combined', 'combined envs replay', 'replay combined envs'],
)
def test_parts_of_one_run_may_be_started_in_any_order(start, tmp_path, order):
    logdir = tmp_path / 'run'
    names = ('actor_addr', 'replay_addr', 'logger_addr')
    addresses = {name: rpc.fill('localhost:{auto}') for name in names}
    flags = {**addresses, 'train_ratio': 8.0, 'remote_replay': True, 'remote_envs': True}
    parts, signs = {}, {'envs': 'env0', 'replay': 'replay', 'combined': 'agent'}
    for name in order.split():
        parts[name] = start(name, **flags, steps=600)
        until(lambda: pid(logdir, signs[name]), f'the start of {name}')  # noqa: B023
    parts['combined'].end()
    parts['envs'].end()  # they are told that the run is over
    parts['replay'].stop()
    found = steps(logdir)
    assert found['agent'] == found['logger'] == 600
    check_stored(logdir, 600)
    # A run that has nothing left to do tells them as well.
    envs = start('envs', **flags, steps=600)
    assert 'Nothing to do: step 600' in start('combined', **flags, steps=600).end()
    envs.end()


@pytest.mark.parametrize(
    ('fail', 'code', 'text'),
    [
        ('train', 1, 'ZeroDivisionError: the update fails'),
        ('policy', 1, 'ZeroDivisionError: the policy fails'),
        ('nan', 1, 'Error: Update 5 of this run: the metric loss/rew is nan'),
        ('env0', 1, 'ZeroDivisionError: the environment fails'),
    ],
)
def test_an_error_in_a_part_ends_the_run_and_is_shown(start, tmp_path, fail, code, text):
    part = start(steps=1e9, train_ratio=8.0, fail=fail, env_restarts=1)
    assert text in part.end(code)
    all_ended(tmp_path / 'run')


def test_a_replay_server_that_is_asked_to_end_is_awaited(start, tmp_path):
    logdir = tmp_path / 'run'
    address = rpc.fill('localhost:{auto}')
    flags = {'replay_addr': address, 'remote_replay': True, 'train_ratio': 8.0, 'steps': 1e9}
    flags['logger_addr'] = rpc.fill('localhost:{auto}')
    replay, part = start('replay', **flags), start(**flags)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    assert 'failed' not in replay.stop()
    replay = start('replay', **flags)
    count = len(lines(logdir))
    until(lambda: any('train/opt/updates' in x for x in lines(logdir)[count:]), 'an update')
    assert part.process.poll() is None
    part.stop()
    replay.stop()
    check_stored(logdir, 50)


def test_lengths_that_differ_between_hosts_are_refused(start, tmp_path):
    address = rpc.fill('localhost:{auto}')
    flags = {'replay_addr': address, 'remote_replay': True, **TRAIN}
    flags['logger_addr'] = rpc.fill('localhost:{auto}')
    replay = start('replay', **{**flags, 'batch_length': 6})
    text = start(**flags).end(2)
    assert 'gives 2 sequences of 7 steps, expected 2 of 5' in text
    assert 'Traceback' not in text
    replay.stop()


def test_addresses_must_differ(start):
    address = rpc.fill('localhost:{auto}')
    text = start(**TRAIN, replay_addr=address, actor_addr=address).end(2)
    assert 'must differ' in text


def test_a_port_that_is_taken_is_named(start):
    with contextlib.closing(rpc.Server(rpc.fill('localhost:{auto}'), 'other').start()) as other:
        address = f'localhost:{other.port}'
        assert str(other.port) in start(**TRAIN, replay_addr=address).end(2)


def test_what_is_elsewhere_needs_an_address(start):
    text = start(**TRAIN, remote_replay=True).end(2)
    assert '--run.replay_addr must name HOST:PORT' in text
    assert "--run.actor_addr is 'localhost:{auto}'" in start('envs', **TRAIN).end(2)


def test_a_second_run_in_the_folder_is_refused(start, tmp_path):
    logdir = tmp_path / 'run'
    first = start(steps=1e9, train_ratio=8.0)
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    assert 'Another run is going on' in start(**TRAIN).end(2)
    first.stop()


def test_a_secret_joins_the_parts_and_is_shown_nowhere(start, tmp_path, monkeypatch):
    monkeypatch.setenv('DREAMER_SECRET', 'correct-horse-battery')
    part = start(steps=1e9, train_ratio=8.0)
    logdir = tmp_path / 'run'
    until(lambda: latest(logdir, 'train/opt/updates'), 'training')
    text = part.stop()
    files = [x.read_bytes() for x in logdir.rglob('*') if x.is_file()]
    assert len(files) > 10
    assert not any(b'correct-horse' in x for x in [*files, text.encode()])


def test_a_duration_ends_a_run(start, tmp_path):
    start(steps=1e9, train_ratio=8.0, duration=2.0).end()
    all_ended(tmp_path / 'run')
    found = steps(tmp_path / 'run')
    assert found['agent'] == found['logger'] > 0


@pytest.mark.parametrize(
    ('script', 'folder'),
    [('replay', 'replay'), ('replay', 'replay_eval'), ('combined', 'replay')],
)
def test_a_replay_server_leaves_the_replay_of_another_run_alone(
    start, tmp_path, script, folder
):
    logdir = tmp_path / 'run'
    replay = embodied.Replay(1, directory=logdir / folder, storage='disk', chunksize=2)
    for number in range(50):
        replay.add({'step': np.int32(number)})
    before = sorted(os.listdir(logdir / folder))
    addr = {x: rpc.fill('localhost:{auto}') for x in ('replay_addr', 'logger_addr')}
    with lock.replays(replay):
        part = start(script, storage='disk', capacity=8, **addr)
        text = part.end(2)
    assert 'Error: Another run uses the replay in' in text
    assert 'Traceback' not in text
    assert sorted(os.listdir(logdir / folder)) == before
