"""Seconds from nothing to the first update, with an empty cache of compiled steps and again.

    python benchmarks/startup.py --kind image --size size1m

`build_s` is what a process needs, imports left out, until train and report are compiled,
`run_s` what `--configs crafter debug --run.steps 8` takes from start to end (0 without
crafter), `help_s` the same of `--help`. The seconds of the processor are less disturbed by
others than those of the clock. Prints JSON with a calibration just before and after.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from calibrate import calibrate

ROOT = Path(__file__).resolve().parent.parent
BUILD = """
import sys, time
sys.path.insert(0, 'benchmarks')
import train
start, cpu = time.perf_counter(), time.process_time()
agent = train.make_agent(*sys.argv[1:3], 'float32', cache=sys.argv[3], precompile=True)
agent.init_train(agent.config.batch_size)
print(time.perf_counter() - start, time.process_time() - cpu)
"""


def child(*arguments: str) -> tuple[float, float, str]:
    """Seconds by the clock and of the processor, and the output, of a Python process."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    start, cpu = time.perf_counter(), used()
    env = {**os.environ, 'PYTHONPATH': str(ROOT)}
    command = [sys.executable, *arguments]
    run = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, used() - cpu, run.stdout


def measure(kind: str, size: str, folder: Path) -> dict[str, float]:
    """One start of each kind with the cache of a folder."""
    cache = str(folder / 'cache')
    wall, cpu = map(float, child('-c', BUILD, kind, size, cache)[2].split()[-2:])
    figures = {'build_s': wall, 'build_cpu_s': cpu, 'run_s': 0.0, 'run_cpu_s': 0.0}
    if find_spec('crafter'):
        with tempfile.TemporaryDirectory() as logdir:
            flags = f'--configs crafter debug --run.steps 8 --logdir {logdir}/run'
            line = f'dreamerv3/main.py {flags} --jax.compilation_cache {cache}'
            figures['run_s'], figures['run_cpu_s'], _ = child(*line.split())
    figures['help_s'] = child('-m', 'dreamerv3.main', '--help')[0]
    return {key: round(value, 2) for key, value in figures.items()}


def main() -> None:
    """Measure a cold start and a warm one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--kind', choices=['vector', 'image'], default='vector')
    parser.add_argument('--size', default='size1m')
    args = parser.parse_args()
    before = calibrate()
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (measure(args.kind, args.size, Path(folder)) for _ in range(2))
    figures = {'cold': cold, 'warm': warm, 'before': before, 'after': calibrate()}
    print(json.dumps({**vars(args), **figures}))


if __name__ == '__main__':
    main()
