"""A run of a loop on doubles, and what can be seen of it afterwards."""

import functools
import json

import elements

import embodied
from embodied import logging, streams
from tests.doubles import CounterEnv, DoubleAgent

ARGS = {
    'replica': 0,
    'replicas': 1,
    'seed': 0,
    'batch_size': 2,
    'batch_length': 4,
    'report_length': 2,
    'consec_train': 1,
    'consec_report': 1,
    'replay_context': 1,
    'steps': 100,
    'duration': 0.0,
    'train_ratio': 8.0,
    'log_every': 1e9,
    'report_every': 0.0,
    'save_every': 1e9,
    'envs': 1,
    'eval_envs': 1,
    'eval_eps': 1,
    'report_batches': 1,
    'from_checkpoint': '',
    'from_checkpoint_regex': '.*',
    'episode_timeout': 180.0,
    'episodes': 0,
    'debug': True,
    'keep': 1,
    'keep_every': 0.0,
    'trust_pickle': False,
    'env_timeout': 0.0,
    'overlap': True,
    'env_restarts': 0,
    'env_python': '',
    'usage': {'psutil': False, 'nvsmi': False, 'gputil': False, 'malloc': False, 'gc': False},
}


class Agent(DoubleAgent):
    """The double, with notes of when it was trained and on what."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.run = None
        self.trained_at = []  # env step of every update
        self.seen = []  # steps of the episodes in every train batch

    def train(self, carry, data):
        self.trained_at.append(int(self.run.logger.step))
        self.seen.append(data['step'].tolist())
        return super().train(carry, data)


class Run:
    """The factories of one run; agent, replay, logger and envs stay here afterwards."""

    def __init__(self, logdir, make_env=CounterEnv, make_agent=Agent, capacity=None, **args):
        self.logdir = logdir
        self.args = elements.Config({**ARGS, **args, 'logdir': str(logdir)})
        self.new_env = make_env
        self.new_agent = make_agent
        self.capacity = capacity
        self.envs = []
        self.agent = self.replay = self.replay_eval = self.logger = None

    def train(self):
        embodied.run.train(
            self.make_agent,
            self.make_replay,
            self.make_env if self.args.debug else self.new_env,
            self.make_stream,
            self.make_logger,
            self.args,
        )
        return self

    def train_eval(self):
        embodied.run.train_eval(
            self.make_agent,
            self.make_replay,
            functools.partial(self.make_replay, 'replay_eval', 'eval'),
            self.make_env,
            lambda index: self.make_env(100 + index),
            self.make_stream,
            self.make_logger,
            self.args,
        )
        return self

    def evaluate(self):
        embodied.run.eval_only(self.make_agent, self.make_env, self.make_logger, self.args)
        return self

    @property
    def step(self):
        return int(self.logger.step)

    def lines(self, name='metrics.jsonl'):
        return [json.loads(x) for x in (self.logdir / name).read_text().splitlines()]

    def make_agent(self):
        env = self.new_env(0)
        self.agent = self.new_agent(env.obs_space, env.act_space, seed=self.args.seed)
        self.agent.run = self
        return self.agent

    def make_env(self, index):
        self.envs.append(self.new_env(index))
        return self.envs[-1]

    def make_replay(self, folder='replay', mode='train', **options):
        args = self.args
        train = mode == 'train'
        steps = args.batch_length * args.consec_train
        if not train:
            steps = args.report_length * args.consec_report
        replay = embodied.Replay(
            length=steps + args.replay_context,
            capacity=self.capacity,
            directory=self.logdir / folder,
            chunksize=32,
            name=folder,
            seed=args.seed,
            **{'online': train, **options},
        )
        setattr(self, folder, replay)
        return replay

    def make_stream(self, replay, mode):
        args, train = self.args, mode == 'train'
        return streams.Consec(
            streams.Stateless(functools.partial(replay.sample, args.batch_size, mode)),
            length=args.batch_length if train else args.report_length,
            consec=args.consec_train if train else args.consec_report,
            prefix=args.replay_context,
            strict=train,
        )

    def make_logger(self):
        outputs = [
            logging.Terminal('score'),
            logging.JSONL(self.logdir),
            logging.JSONL(self.logdir, 'scores.jsonl', '^episode/score$'),
        ]
        self.logger = logging.Logger(elements.Counter(), outputs)
        return self.logger
