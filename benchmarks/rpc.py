"""Speed of the RPC border on loopback, beside that of portal's own server.

Prints JSON. Each server runs in a process of its own. `machine` is the speed meanwhile: on one
whose copies reach 12 GB/s, a reply of 12.6 MB is meant to take at most 10 ms and one of 55 MB
at most 80 ms, and an idle server at most 2 % of a core.

    python benchmarks/rpc.py [seconds per figure]
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import portal
import psutil
from measure import mean, median, pipelined, speed

from embodied.core import rpc

STEPS, ENVS, INFLIGHT = 16 * 64, 8, 16
IMAGE = (64, 64, 3)


def main(seconds: float = 2.0) -> None:
    """Measure and print everything."""
    speeds = [speed()]
    with serving('ours') as (process, addr), rpc.Client(addr, inflight=INFLIGHT) as client:
        ours = replies(client, seconds)
        add = lambda: client.call('add', batch)
        batch = transitions()
        ours['add_8_per_s'] = round(pipelined(add, seconds, INFLIGHT))
        speeds.append(speed())
        ours |= idle(process, seconds)
    with serving('portals') as (process, addr):
        client = portal.Client(addr, logging=False)
        theirs = replies(client, seconds) | idle(process, seconds)
        client.close()
    speeds.append(speed())
    machine = mean(speeds)
    sizes = {key: round(size(value) / 1e6, 2) for key, value in answers().items()}
    sizes['add_8'] = round(size(batch) / 1e6, 2)
    print(
        json.dumps({'ours': ours, 'portal': theirs, 'mb': sizes, 'machine': machine}, indent=2)
    )


def answers() -> dict[str, dict]:
    """What the methods return: nothing, a batch of the small model, and one of the largest."""
    image = np.random.default_rng(0).integers(0, 255, (STEPS, *IMAGE), np.uint8)
    return {
        'empty': {},
        'batch': {'image': image, 'reward': np.zeros(STEPS, np.float32)},
        'large_batch': {'image': image, 'deter': np.ones((STEPS, 20_700), np.uint16)},
    }


def transitions() -> dict[str, np.ndarray]:
    """One step of each of eight environments."""
    return {
        'image': np.zeros((ENVS, *IMAGE), np.uint8),
        'reward': np.zeros(ENVS, np.float32),
        **{f'is_{name}': np.zeros(ENVS, bool) for name in ('first', 'last', 'terminal')},
        'action': np.zeros(ENVS, np.int32),
        'envid': np.arange(ENVS),
    }


def size(data: dict) -> int:
    return sum(x.nbytes for x in data.values())


def serve(kind: str, addr: str) -> None:
    """Be a server until the standard input ends."""
    if kind == 'ours':
        server = rpc.Server(addr)
        server.bind('add', lambda batch: {}, once=True)
    else:
        server = portal.Server(rpc.split(addr)[1], host='127.0.0.1', logging=False)
    for name, answer in answers().items():
        server.bind(name, lambda answer=answer: answer)
    server.start() if kind == 'ours' else server.start(block=False)
    print('ready', flush=True)
    sys.stdin.read()
    server.close()


@contextlib.contextmanager
def serving(kind: str) -> Iterator[tuple]:
    """Yield the process of a server, and its address."""
    addr, pipe = rpc.fill('localhost:{auto}'), subprocess.PIPE
    command = [sys.executable, __file__, 'serve', kind, addr]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == 'ready\n'
        yield process, addr
        process.stdin.close()


def replies(client, seconds: float) -> dict[str, float]:
    """Median milliseconds of calls one after the other."""
    return {
        f'{name}_ms': round(1000 * median(lambda: client.call(name).result(60), seconds), 2)  # noqa: B023
        for name in answers()
    }


def idle(process: subprocess.Popen, seconds: float) -> dict[str, float]:
    """Percent of a core that a server takes while it has a client and nothing to do."""
    usage = psutil.Process(process.pid)
    usage.cpu_percent()
    time.sleep(seconds)
    return {'idle_percent_of_a_core': usage.cpu_percent()}


if __name__ == '__main__':
    if sys.argv[1:2] == ['serve']:
        serve(*sys.argv[2:])
    else:
        main(*map(float, sys.argv[1:]))
