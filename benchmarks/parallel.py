"""The replay server and a whole parallel run on loopback. Prints JSON.

    python benchmarks/parallel.py [seconds per figure] [seconds of the run]

The server is `parallel_replay` with a real replay, in a process of its own: a batch of 16 x 64
images (12.6 MB), and one of 55 MB with latents as large as those of the largest model;
inserts of 8 envs without the limiter; its share of a core while nothing happens. The run is
`--script parallel` with the debug model, 4 dummy envs and train_ratio -1. For the wire alone,
beside the untouched library, see benchmarks/rpc.py.
"""

import contextlib
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import psutil
from measure import mean, median, pipelined, speed

import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories
from embodied import streams
from embodied.core import rpc
from embodied.run import parallel

BATCH, LENGTH, ENVS = 16, 64, 8
LATENT = 20_700  # 16-bit numbers that make a batch 55 MB
RUN = ['--configs', 'debug', '--task', 'dummy_disc', '--script', 'parallel']


def main(seconds: float = 2.0, duration: float = 90.0) -> None:
    """Measure and print everything."""
    speeds = [speed()]
    result = {}
    for name, latent in (('batch_12_6_mb', 0), ('batch_55_mb', LATENT)):
        with tempfile.TemporaryDirectory() as folder, serving(folder, latent) as (pid, client):
            result[name] = server(pid, client, latent, seconds)
            speeds.append(speed())
    with tempfile.TemporaryDirectory() as folder:
        result['run'] = run(pathlib.Path(folder), duration)
    speeds.append(speed())
    result['machine'] = mean(speeds)
    print(json.dumps(result, indent=2))


def server(pid: int, client: rpc.Client, latent: int, seconds: float) -> dict[str, float]:
    """Rates of one replay server."""
    usage = psutil.Process(pid)
    data = transitions(latent)
    add = functools.partial(client.call, 'add_batch', data)
    for _ in range(2 * LENGTH * BATCH // ENVS):
        add().result(60)
    inserts = ENVS * pipelined(add, seconds, 15)
    sample = lambda: client.call('sample_batch_train').result(60)
    size = sum(x.nbytes for x in sample().values())
    wait = median(sample, seconds)
    usage.cpu_percent()
    time.sleep(seconds)
    return {
        'mb': round(size / 1e6, 1),
        'sample_ms': round(1000 * wait, 2),
        'inserts_per_s': round(inserts),
        'idle_percent_of_a_core': usage.cpu_percent(),
        'ram_mb': round(usage.memory_info().rss / 1e6),
    }


@contextlib.contextmanager
def serving(folder: str, latent: int) -> Iterator[tuple[int, rpc.Client]]:
    """Yield the process id of a replay server and a client of it."""
    addr = rpc.fill('localhost:{auto}')
    command = [sys.executable, __file__, 'serve', folder, addr]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as process,
        rpc.Client(addr, 'benchmark') as client,
    ):
        assert client.connect(60)
        yield process.pid, client
        process.terminate()


def serve(folder: str, addr: str) -> None:
    """Be a replay server."""
    config = configs.load((), {'logdir': folder})
    args = factories.run_args(config).update(
        replay_addr=addr, logger_addr=rpc.fill('localhost:{auto}'), train_ratio=-1.0,
        batch_size=BATCH, batch_length=LENGTH, save_every=0.0,
    )  # fmt: skip
    replay = lambda: embodied.Replay(LENGTH, 2000, directory=f'{folder}/replay')

    def stream(replay: embodied.Replay, mode: str) -> embodied.Stream:
        draw = streams.Stateless(functools.partial(replay.sample, BATCH, mode))
        return streams.Consec(draw, LENGTH, 1, contiguous=True)

    parallel.parallel_replay(replay, replay, stream, args)


def run(folder: pathlib.Path, duration: float) -> dict[str, float]:
    """Env steps and replayed steps per second of a whole run, after its start-up."""
    flags = {
        'logdir': folder, 'run.steps': 1e9, 'run.duration': duration, 'run.train_ratio': -1,
        'run.eval_envs': 0, 'run.log_every': 2, 'run.report_every': 0,
        'logger.outputs': 'jsonl',
    }  # fmt: skip
    words = [word for key, value in flags.items() for word in (f'--{key}', str(value))]
    command = [sys.executable, '-m', 'dreamerv3.main', *RUN, *words]
    memory = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                parts = [tree, *tree.children(recursive=True)]
                memory = max(memory, sum(x.memory_info().rss for x in parts))
            time.sleep(1)
    rows = [json.loads(x) for x in (folder / 'metrics.jsonl').read_text().splitlines()]
    found = {}
    for key in ('fps/env', 'fps/train'):
        values = [x[key] for x in rows if key in x]
        found[key] = round(statistics.median(values[len(values) // 2 :]), 1)
    return {
        'env_steps_per_s': found['fps/env'],
        'replayed_steps_per_s': found['fps/train'],
        'ram_of_all_processes_mb': round(memory / 1e6),
        'steps': rows[-1]['step'],
    }


def transitions(latent: int) -> dict[str, np.ndarray]:
    """One step of each of the envs, as the actor sends it."""
    image = np.random.default_rng(0).integers(0, 255, (ENVS, 64, 64, 3), np.uint8)
    return {
        'envid': np.arange(ENVS),
        'is_eval': np.zeros(ENVS, bool),
        'image': image,
        'reward': np.zeros(ENVS, np.float32),
        **{f'is_{name}': np.zeros(ENVS, bool) for name in ('first', 'last', 'terminal')},
        'action': np.zeros(ENVS, np.int32),
        **({'dyn/deter': np.ones((ENVS, latent), np.uint16)} if latent else {}),
    }


if __name__ == '__main__':
    if sys.argv[1:2] == ['serve']:
        serve(*sys.argv[2:])
    else:
        main(*map(float, sys.argv[1:]))
