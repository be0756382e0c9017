"""Training in several processes or on several hosts, joined by RPC.

    envs --act--> actor (in the agent's process) --add_batch--> replay --sample--> learner
                    '--transitions--> logger <--metrics-- learner, replay

Each part is a function that serves or works until it is asked to end, saves, and returns:
the agent (actor and learner), the replay server, the logger, and each environment. `combined`
starts all that is not started elsewhere, and ends it together. Factories are callables or
their cloudpickle bytes.
"""

from .agent import parallel_agent
from .combined import combined
from .envs import parallel_env, parallel_envs
from .logger import parallel_logger
from .replay import parallel_replay

__all__ = [
    'combined',
    'parallel_agent',
    'parallel_env',
    'parallel_envs',
    'parallel_logger',
    'parallel_replay',
]
