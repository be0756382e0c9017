"""Duration, memory and arithmetic of the training step and the report.

    python benchmarks/train.py --kind image --size size1m --dtype float32 [--count]

Prints one line of JSON with a calibration of the machine just before and after. With --count
nothing runs and no parameters exist: arithmetic and memory alone, for models of any size.
--heads says how actor and critic see imagined states: step by step (as on CPUs), all at once
(as on accelerators), or all at once and again in the backward pass (with jax.remat).
Nothing is taken from a compilation cache, unless JAX_COMPILATION_CACHE_DIR names one.

    build_s                 making the agent, its initialisation included
    train_trace_s           tracing the step; train_compile_s: lowering it and compiling it
    train_ms, train_ms_min  median and least duration of an update
    train_gflop             of its products, loops counted as often as they run (flops.py)
    train_gflop_xla         all its operations as XLA counts them, the body of a loop once
    train_loops             loops that XLA compiled
    train_kernels           different kernels that XLA compiled (CPUs and GPUs)
    train_temp_mib          peak of the values between inputs and outputs, by XLA's analysis
    train_args_mib          parameters, optimizer and batch
    rate                    train_gflop per second as a share of the calibrated rate of
                            products of that dtype
    max_rss_mib             peak memory of the whole process, compilation included

The same with report_ is of the report, for batches of 16 x 32.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import agents
import flops
import jax
from calibrate import calibrate
from measure import durations, line, short

STEPS = ('train', 'report')


def main() -> None:
    """Measure what the flags name."""
    parser = agents.parser(__doc__)
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--count', action='store_true')
    parser.add_argument('--heads', choices=('step', 'once', 'again'))
    args = parser.parse_args()
    before = calibrate()
    config = agents.make_config(args.size, args.dtype, **{'jax.remat': args.heads == 'again'})
    cls = agents.Unallocated if args.count else agents.Watched
    start = time.perf_counter()
    agent = agents.make_agent(args.kind, config, cls)
    if not args.count:
        jax.block_until_ready(agent.state)
    figures = {'build_s': short(time.perf_counter() - start)}
    if args.heads:
        agent.model.stepwise = args.heads == 'step'
    for name in STEPS:
        figures |= compilation(agent, name)
    if not args.count:
        figures |= run(agent, args.repeats)
    after = calibrate()
    if not args.count:
        figures['rate'] = rate(figures, args.dtype, before, after)
    figures['max_rss_mib'] = max_rss_mib()
    flags = {k: v for k, v in vars(args).items() if k != 'repeats' and v is not None}
    print(line('train', flags, figures, before, after))


def compilation(agent: agents.Watched, name: str) -> dict[str, float]:
    """Compile a step, and count what it does."""
    agents.compile_step(agent, name)
    step = agent.steps[name]
    memory = step.compiled.memory_analysis()
    return {
        f'{name}_trace_s': short(step.trace_s),
        f'{name}_compile_s': short(step.compile_s),
        f'{name}_gflop': short(flops.of_traced(step.traced) / 1e9),
        f'{name}_gflop_xla': short(step.compiled.cost_analysis()['flops'] / 1e9),
        f'{name}_loops': flops.loops(step.compiled),
        f'{name}_kernels': flops.kernels(step.compiled),
        f'{name}_temp_mib': short(memory.temp_size_in_bytes / 2**20),
        f'{name}_args_mib': short(memory.argument_size_in_bytes / 2**20),
    }


def run(agent: agents.Watched, repeats: int) -> dict[str, float]:
    """Durations of updates and reports."""
    figures = {}
    for name in STEPS:
        times = durations(_caller(agent, name), repeats)
        figures[f'{name}_ms'] = short(1e3 * statistics.median(times))
        figures[f'{name}_ms_min'] = short(1e3 * min(times))
    return figures


def rate(figures: dict, dtype: str, before: dict, after: dict) -> float:
    """Share of the calibrated rate of products that the update reaches."""
    key = {'float32': 'matmul_f32', 'bfloat16': 'matmul_bf16'}[dtype]
    return round(
        figures['train_gflop'] / figures['train_ms'] * 2e3 / (before[key] + after[key]), 3
    )


def max_rss_mib() -> int:
    """Peak memory of this process so far."""
    unit = 1 if sys.platform == 'darwin' else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def _caller(agent: agents.Watched, name: str) -> Callable[[], object]:
    """One call after the other, on the same batch."""
    data = agents.make_batch(agent, name)
    carry: Any = {'train': agent.init_train, 'report': agent.init_report}[name](
        agent.config.batch_size
    )

    def call() -> None:
        nonlocal carry
        carry, *_ = getattr(agent, name)(carry, data)
        jax.block_until_ready((carry, agent.state))

    return call


if __name__ == '__main__':
    main()
