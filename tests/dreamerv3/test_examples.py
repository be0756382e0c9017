"""Examples that are no Python: the replay on another host, and a config of one's own."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys

from dreamerv3 import config as configs

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    # However unevenly the two play, one of their episodes of 100 steps ends.
    '--configs debug --random_agent True --run.steps 250 --run.envs 2 --run.eval_envs 0 '
    '--run.train_ratio 4 --logger.outputs jsonl'
)


def test_two_hosts(tmp_path):
    """Both on this one, with a folder each."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(('127.0.0.1', 0))) for _ in range(2)]
        addresses = [f'127.0.0.1:{x.getsockname()[1]}' for x in free]
    env = {**os.environ, 'PYTHON': sys.executable, 'DREAMER_SECRET': 'abc'}

    def start(part):
        command = ['examples/two_hosts.sh', part, *addresses, tmp_path / part, *FLAGS.split()]
        with open(tmp_path / f'{part}.txt', 'w') as file:
            return subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT
            )

    replay = start('replay')
    try:
        learner = start('learner')
        code = learner.wait(120)
        replay.send_signal(signal.SIGTERM)
        codes = code, replay.wait(60)
    finally:
        replay.kill()
    texts = [(tmp_path / f'{x}.txt').read_text() for x in ('learner', 'replay')]
    assert codes == (0, 0), texts
    assert (tmp_path / 'learner' / 'scores.jsonl').exists()
    assert list((tmp_path / 'replay' / 'replay').glob('*.npz'))


def test_the_config_of_cartpole():
    config = configs.load(files=[ROOT / 'examples' / 'cartpole.yaml'])
    assert config.task == 'gym_CartPole-v1'
    assert config.agent.dyn.rssm.deter == 128
    configs.finish(config.update(logdir='/nowhere'))
