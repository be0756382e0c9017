"""Three hosts, each a network namespace on a bridge: one dies, another is cut off."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading

import pytest

from tests.run.parallel import test_parallel as base

NET = '10.213.77'
OUTAGE = 30.0  # seconds


def ip(*args):
    subprocess.run(['ip', *map(str, args)], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts():
    """Names of three namespaces with the addresses NET.1 to NET.3, and of their cables."""
    if not shutil.which('ip'):
        pytest.skip('The command ip is missing (Debian: iproute2).')
    tag = f'd{os.getpid() % 10**6}'
    names = [f'{tag}h{i}' for i in (1, 2, 3)]
    with contextlib.ExitStack() as stack:
        try:
            for name in (*names, f'{tag}s'):
                ip('netns', 'add', name)
                stack.callback(ip, 'netns', 'del', name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f'Network namespaces are not allowed here: {error.stderr.decode()}')
        inside = functools.partial(ip, 'netns', 'exec', f'{tag}s', 'ip', 'link')
        inside('add', 'bridge', 'type', 'bridge')
        inside('set', 'bridge', 'up')
        for index, name in enumerate(names, 1):
            inside('add', f'port{index}', 'type', 'veth', 'peer', 'name', 'eth', 'netns', name)
            inside('set', f'port{index}', 'master', 'bridge', 'up')
            within = functools.partial(ip, '-n', name)
            within('addr', 'add', f'{NET}.{index}/24', 'dev', 'eth')
            within('link', 'set', 'eth', 'up')
            within('link', 'set', 'lo', 'up')
        yield names, lambda index, state: inside('set', f'port{index}', state)


class Part(base.Part):
    """A program on one of the hosts."""

    def __init__(self, host, name, logdir, **flags):
        self.host = host
        super().__init__(name, logdir, **flags)

    def command(self, name):
        program = [sys.executable, '-W', 'error', '-m', 'tests.run.parallel.parts', name]
        return ['ip', 'netns', 'exec', self.host, *program]


@pytest.mark.timeout(280)
def test_hosts_train_together_through_a_kill_and_an_outage(hosts, tmp_path):
    (first, second, third), cable = hosts
    flags = {
        'replay_addr': f'{NET}.1:2001', 'actor_addr': f'{NET}.2:2002',
        'logger_addr': f'{NET}.2:2003', 'remote_replay': True, 'remote_envs': True,
        'train_ratio': 8.0, 'steps': 1e9,
    }  # fmt: skip
    logdir, parts = tmp_path / 'learner', []

    def start(host, name, folder):
        parts.append(Part(host, name, tmp_path / folder, **flags))
        return parts[-1]

    def after(what, steps=200):
        """Wait until the run has gone on for so many steps, with updates."""
        reached = lines_step(logdir) + steps
        count = len(base.lines(logdir))
        base.until(lambda: lines_step(logdir) >= reached, f'the run {what}')
        base.until(
            lambda: any('train/opt/updates' in x for x in base.lines(logdir)[count:]),
            f'an update {what}',
        )

    try:
        start(third, 'envs', 'envs')
        replay = start(first, 'replay', 'replay')
        learner = start(second, 'combined', 'learner')
        after('of three hosts', 500)
        replay.process.kill()
        replay.process.wait()
        replay = start(first, 'replay', 'replay')
        after('with a new replay server', 500)
        cable(3, 'down')  # that of the environments
        threading.Event().wait(OUTAGE)
        before = lines_step(logdir)
        cable(3, 'up')
        after('after the outage', max(500, 2000 - before))
        assert learner.process.poll() is None
        for part in (learner, parts[0], replay):
            part.stop()
    finally:
        for part in parts:
            part.process.kill()
            part.process.wait()
    assert lines_step(logdir) >= 2000
    rows = base.stored(tmp_path / 'replay')
    assert len({tuple(x) for x in rows.tolist()}) == len(rows)


def lines_step(logdir):
    return max((int(x['step']) for x in base.lines(logdir)), default=0)
