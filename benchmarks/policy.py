"""Duration of a policy call, for 1 and 16 environments.

    python benchmarks/policy.py --kind image --size size1m --dtype float32

Prints one line of JSON with a calibration of the machine just before and after.

    call_1_ms           median of a call with numpy observations, until actions are numpy
    compiled_1_ms       of the compiled step within, with everything on the device already
    host_share_1        the rest's share of the call: transfers, counting, dispatch
"""

import statistics
from typing import Any

import agents
import jax
import numpy as np
from calibrate import calibrate
from measure import durations, line, short

ENVS = (1, 16)


def main() -> None:
    """Measure what the flags name."""
    parser = agents.parser(__doc__)
    parser.add_argument('--repeats', type=int, default=200)
    args = parser.parse_args()
    agent = agents.make_agent(args.kind, agents.make_config(args.size, args.dtype))
    for envs in ENVS:
        agent.init_policy(envs)  # compiles
    before = calibrate()
    figures: dict[str, float] = {}
    for envs in ENVS:
        figures |= measure(agent, envs, args.repeats)
    flags = {k: v for k, v in vars(args).items() if k != 'repeats'}
    print(line('policy', flags, figures, before, calibrate()))


def measure(agent: Any, envs: int, repeats: int) -> dict[str, float]:
    """Durations of the whole call and of the compiled step."""
    obs = {k: np.zeros((envs, *s.shape), s.dtype) for k, s in agent.obs_space.items()}
    carry = agent.init_policy(envs)

    def call() -> None:
        nonlocal carry
        carry, *_ = agent.policy(carry, obs)

    whole = 1e3 * statistics.median(durations(call, repeats))
    step, (placed, seeds) = (
        agent._step('policy', envs),
        jax.device_put((obs, agent._seeds(0, 'policy'))),
    )

    def compiled() -> None:
        nonlocal carry
        carry, *rest = step(agent.view, carry, placed, seeds)
        jax.block_until_ready((carry, rest))

    inner = 1e3 * statistics.median(durations(compiled, repeats))
    return {
        f'call_{envs}_ms': short(whole),
        f'compiled_{envs}_ms': short(inner),
        f'host_share_{envs}': round(1 - inner / whole, 3),
    }


if __name__ == '__main__':
    main()
