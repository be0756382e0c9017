"""Training in one process: act, remember, learn, step by step."""

from collections.abc import Callable
from typing import Any

from . import training


def train(
    make_agent: Callable,
    make_replay: Callable,
    make_env: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: Any,
    ready: Callable[[], Any] | None = None,
) -> None:
    """Train until run.steps env steps or run.duration seconds; go on where logdir/ckpt ends.

    A step is one call of env.step by the agent, resets included. All envs step together, so
    that a run passes run.steps by fewer steps than there are envs.

    ready(): called before the first step, once nothing can be refused any more but by a
    compiler. One run at a time holds the logdir. A checkpoint is saved after the first updates,
    every save_every seconds, at the end, and when SIGINT or SIGTERM ends the run. Raises
    UserError for arguments that do not fit each other or a checkpoint that does not load,
    before the first step; NotFinite for a loss or parameter that is not finite.
    """
    training.run(make_agent, make_replay, make_env, make_stream, make_logger, args, ready)
