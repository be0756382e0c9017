"""Seconds until an agent can train, and those of a short run from start to end.

    python benchmarks/startup.py --kind vector|image
    python benchmarks/startup.py --run

Each figure comes from a fresh process: cold ones with an empty compilation cache, warm ones
with what the first process left there. Prints one line of JSON with a calibration of the
machine just before and after.

    cold_import_s   from the start of the process until the agent is imported
    cold_build_s    making the agent, without its parameters
    cold_compile_s  tracing and compiling the update and, beside it, the report and what makes
                    the parameters; making them
    cold_total_s    all of these

With --run:

    help_s          `python -m dreamerv3.main --help`, the median of five
    bare_s          an interpreter that does nothing, likewise
    cold_run_s      `python dreamerv3/main.py --configs crafter debug --run.steps 8`
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import agents
import jax
from calibrate import calibrate
from measure import durations, line, short

from embodied.jax.runtime.setup import setup

FILE = pathlib.Path(__file__).resolve()
ROOT = FILE.parent.parent
RUN = ['dreamerv3/main.py', '--configs', 'crafter', 'debug', '--run.steps', '8']


def main() -> None:
    """Measure what the flags name, or be the process that is measured."""
    args = parse()
    if args.child:
        print(json.dumps(start(args)))
        return
    before, figures = calibrate(), {}
    if args.run:
        figures['help_s'] = median('-m', 'dreamerv3.main', '--help')
        figures['bare_s'] = median('-c', '')
    with tempfile.TemporaryDirectory() as cache:
        for name in ('cold', 'warm'):
            found = {'run_s': run(cache)} if args.run else child(args, cache)
            figures |= {f'{name}_{key}': value for key, value in found.items()}
    figures = {key: short(value) for key, value in figures.items()}
    flags = {'run': True} if args.run else {k: vars(args)[k] for k in ('kind', 'size', 'dtype')}
    print(line('startup', flags, figures, before, calibrate()))


def parse() -> argparse.Namespace:
    """The flags; --child is for the processes that this program starts."""
    parser = agents.parser(__doc__)
    parser.add_argument('--run', action='store_true')
    parser.add_argument('--child', nargs=2, help=argparse.SUPPRESS)  # cache, time of the start
    return parser.parse_args()


def median(*words: str) -> float:
    """Seconds that an interpreter takes from start to end."""
    return statistics.median(durations(lambda: python(*words), 5))


def run(cache: str) -> float:
    """Seconds of a short run from start to end."""
    with tempfile.TemporaryDirectory() as logdir:
        start = time.perf_counter()
        python(*RUN, '--logdir', logdir, '--jax.compilation_cache', cache)
        return time.perf_counter() - start


def child(args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Figures of an agent in a process of its own."""
    flags = ('--kind', args.kind, '--size', args.size, '--dtype', args.dtype)
    out = python(str(FILE), *flags, '--child', cache, str(time.time()))
    return json.loads(out.splitlines()[-1])


def python(*words: str) -> str:
    """What an interpreter prints; its errors are shown, and end this program."""
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def start(args: argparse.Namespace) -> dict[str, float]:
    """Be the process that makes an agent. Returns the seconds of each part."""
    cache, started = args.child
    times = [float(started), time.time()]
    done = lambda: times.append(time.time())
    flags = {'jax.compilation_cache': cache, 'jax.precompile': True}
    config = agents.make_config(args.size, args.dtype, **flags)
    setup(config.jax)
    agent = agents.make_agent(args.kind, config)
    done()
    agent.init_train(config.batch_size)
    agents.compile_step(agent, 'train')
    agents.compile_step(agent, 'report')
    jax.block_until_ready(agent.state)
    done()
    parts = [b - a for a, b in itertools.pairwise(times)]
    names = ('import_s', 'build_s', 'compile_s')
    return {**dict(zip(names, parts, strict=True)), 'total_s': times[-1] - times[0]}


if __name__ == '__main__':
    main()
