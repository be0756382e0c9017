"""Parts of a parallel run on doubles, each in a process of its own.

`python -m tests.run.parallel.parts PART ARGS`, where PART is combined, agent, replay, logger
or envs and ARGS a Python dict over those of the harness. All but agent, envs and what is
asked of them is real, down to exit codes.
"""

import ast
import functools
import os
import pathlib
import sys
import time

import elements
import numpy as np

import embodied
from embodied import logging, streams
from embodied.core.errors import NotFinite
from embodied.run import parallel
from tests.doubles import CounterEnv, DoubleAgent
from tests.run import guests
from tests.run.harness import ARGS

PARALLEL = {
    'actor_addr': 'localhost:{auto}', 'replay_addr': 'localhost:{auto}',
    'logger_addr': 'localhost:{auto}', 'bind': '', 'actor_batch': -1, 'actor_threads': 1,
    'agent_process': False, 'remote_replay': False, 'remote_envs': False, 'envs': 3,
    'env_restarts': 10, 'log_every': 0.2, 'save_every': 0.2, 'report_every': 0.2,
    'eval_envs': 0, 'storage': 'ram', 'capacity': 100_000, 'length': 10, 'fail': '',
}  # fmt: skip


class LifeEnv(CounterEnv):
    """Says beside its counts which process it lives in, and writes down what it was given."""

    def __init__(self, env: int, args: elements.Config):
        super().__init__(env, length=args.length)
        self._args = args
        self.life = int.from_bytes(os.urandom(4), 'little') >> 1
        note(args, f'env{env}')

    @property
    def obs_space(self):
        return {**super().obs_space, 'life': elements.Space(np.int32)}

    def step(self, action):
        if self._args.fail == f'env{self.env}' and self.episode == 3:
            raise ZeroDivisionError('the environment fails')
        if self._args.fail == f'guest{self.env}' and self.episode == 3:
            self._misbehave()
        if self._args.fail == f'hang{self.env}' and self.episode == 3 and self._is_first():
            time.sleep(1e6)
        return {**super().step(action), 'life': np.int32(self.life)}

    def _is_first(self):
        """Whether no environment of the run has come here before."""
        path = pathlib.Path(self._args.logdir) / 'pids' / 'first'
        return not path.exists() and not note(self._args, 'first')

    def _misbehave(self):
        """In its first life: end a child, as a Pool does, and then the process."""
        if self._is_first():
            guests.Guest.start_and_end_child(self)
            sys.exit(0)


class Agent(DoubleAgent):
    """Fails at an update or an action on request."""

    def train(self, carry, data):
        if self.config.fail == 'train' and self.updates == 5:
            raise ZeroDivisionError('the update fails')
        carry, outs, metrics = super().train(carry, data)
        if self.config.fail == 'nan' and self.updates == 5:
            metrics = {**metrics, 'loss/rew': np.float32(np.nan)}
        return carry, outs, metrics

    def policy(self, carry, obs, mode='train'):
        if self.config.fail == 'policy' and self.actions == 50:
            raise ZeroDivisionError('the policy fails')
        return super().policy(carry, obs, mode)


def note(args, name):
    """Leave the pid of this process where the test finds it."""
    folder = pathlib.Path(args.logdir) / 'pids'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(str(os.getpid()))


def make_agent(args):
    note(args, 'agent')
    env = LifeEnv(99, args)
    return Agent(env.obs_space, env.act_space, args)


def make_replay(args, folder='replay', mode='train'):
    note(args, 'replay')
    return embodied.Replay(
        length=_steps(args, mode) + args.replay_context,
        capacity=args.capacity, directory=pathlib.Path(args.logdir) / folder, chunksize=32,
        name=folder, storage=args.storage,
    )  # fmt: skip


def make_stream(args, replay, mode):
    return streams.Consec(
        streams.Stateless(functools.partial(replay.sample, args.batch_size, mode)),
        length=args.batch_length if mode == 'train' else args.report_length,
        consec=args.consec_train if mode == 'train' else 1, prefix=args.replay_context,
        strict=mode == 'train',
    )  # fmt: skip


def _steps(args, mode):
    return args.batch_length * args.consec_train if mode == 'train' else args.report_length


def make_logger(args):
    note(args, 'logger')
    outputs = [
        logging.Terminal('score|limiter|parallel/ep'),
        logging.JSONL(args.logdir),
        logging.JSONL(args.logdir, 'scores.jsonl', '^episode/score$'),
    ]
    return logging.Logger(elements.Counter(), outputs)


def make_env(args, index):
    return LifeEnv(index, args)


def make_env_eval(args, index):
    return LifeEnv(args.envs + index, args)


def main(part: str, flags: dict) -> None:
    """Run one part."""
    args = elements.Config({**ARGS, **PARALLEL, **flags})
    bind = lambda fn, *more: functools.partial(fn, args, *more)
    agent, envs = bind(make_agent), (bind(make_env), bind(make_env_eval))
    replays = bind(make_replay), bind(make_replay, 'replay_eval', 'eval')
    stream, logger = bind(make_stream), bind(make_logger)
    run = {
        'combined': lambda: parallel.combined(agent, *replays, *envs, stream, logger, args),
        'agent': lambda: parallel.parallel_agent(agent, args),
        'replay': lambda: parallel.parallel_replay(*replays, stream, args),
        'logger': lambda: parallel.parallel_logger(logger, args),
        'envs': lambda: parallel.parallel_envs(*envs, args),
    }[part]
    try:
        run()
    except embodied.UserError as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(2) from None
    except NotFinite as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == '__main__':
    main(sys.argv[1], ast.literal_eval(sys.argv[2]))
