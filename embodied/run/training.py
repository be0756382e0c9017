"""What train and train_eval share: the parts of a run, how it resumes, and its loop."""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from elements import timer

from .. import logging
from ..checkpoint import checkpoint
from ..core import clocks, output, signals
from ..core.errors import NotFinite
from ..core.guest import Guest
from . import lock, start
from .learner import Learner
from .saver import Saver

SLICE = 10  # env steps between two looks at whether to report, log or save


def run(
    make_agent: Callable,
    make_replay: Callable,
    make_env: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: Any,
    ready: Callable[[], Any] | None = None,
    make_evaluation: Callable | None = None,
) -> None:
    """Train until run.steps env steps or run.duration seconds; go on where logdir/ckpt ends.

    ready(): called once nothing can be refused any more but by a compiler, and nothing of an
    earlier run has been changed. make_evaluation(agent, logger, args): what to do beside each
    report, see `Evaluation`.
    """
    start.check(args)
    cp = checkpoint.Checkpoint(pathlib.Path(args.logdir) / 'ckpt', args.keep)
    if args.from_checkpoint and not cp.exists():
        start.find_agent(args)  # a wrong path shows before anything compiles

    with (
        output.guarded(),
        signals.Stop() as stop,
        lock.held(args.logdir),
        contextlib.ExitStack() as stack,
    ):
        agent = Guest()(make_agent)
        logger = stack.enter_context(contextlib.closing(make_logger()))
        replay = make_replay()
        start.check_replay(replay, args)
        step = logger.step
        learner = Learner(agent, replay, make_stream, args, logger.busy)
        cp.parts.update(step=step, agent=agent, replay=replay, ratio=learner.ratio)
        evaluation = make_evaluation(agent, logger, args) if make_evaluation else None
        if evaluation:
            cp.parts['replay_eval'] = evaluation.replay
        stack.enter_context(lock.replays(replay, cp.parts.get('replay_eval')))
        with logger.busy('Loading'):
            restore(cp, learner, args)
        print(learner.describe(), flush=True)
        if step >= args.steps:
            begin(logger, ready)
            print(f'Nothing to do: step {int(step):,} of run.steps {args.steps:,.0f}.')
            return
        with logger.busy('Preparing the update'):
            learner.prepare()
        driver = start.make_driver(make_env, args.envs, args, int(step), args.overlap)
        with contextlib.closing(driver), evaluation or contextlib.nullcontext():
            begin(logger, ready)
            stop.begin()
            loop(agent, replay, driver, learner, logger, cp, args, stop, evaluation)
        if stop.requested:
            print(f'Stopped and saved at step {int(step):,}; the same command goes on.')


def begin(logger: logging.Logger, ready: Callable[[], Any] | None) -> None:
    """Change what an earlier run wrote, now that this one goes on."""
    if ready:
        ready()
    logger.rewind(logger.step)


def loop(
    agent: Any,
    replay: Any,
    driver: Any,
    learner: Learner,
    logger: logging.Logger,
    cp: checkpoint.Checkpoint,
    args: Any,
    stop: signals.Stop,
    evaluate: Callable[[signals.Stop], None] | None = None,
) -> None:
    """Step, learn, report, log and save until the end."""
    step = logger.step
    episodes = logging.Episodes(args.episode_timeout)
    usage = logging.Usage(**args.usage)
    rate = logging.Rate()
    report_due = clocks.Every(args.report_every)
    log_due = clocks.Every(args.log_every)
    saver = Saver(cp, args)
    logged = None  # step of the last log
    end = time.monotonic() + args.duration if args.duration else math.inf

    def over():
        return stop.requested or time.monotonic() >= end

    def on_step(transition, worker):
        step.increment()
        rate.add()
        if ended := episodes.add(transition, worker):
            logger.add(ended)
            logger.write()
        learner(step, ahead=len(driver) - 1 - worker, over=over)

    def log():
        logger.add(learner.metrics.result(), prefix='train')
        logger.add(episodes.stats())
        logger.add(replay.stats(), prefix='replay')
        logger.add(usage.stats(), prefix='usage')
        logger.add({'fps/policy': rate.result(), 'fps/train': learner.rate.result()})
        logger.add(logging.timer_stats(), prefix='timer')
        logger.write()
        return int(step)

    policy = timer.section('policy')(functools.partial(agent.policy, mode='train'))
    insert = start.Inserter(replay)
    driver.on_batch(insert)
    driver.on_step(on_step)
    driver.reset(agent.init_policy)
    while step < args.steps and not over():
        with rescue(saver, learner, lambda: driver.failed or insert.failed):
            play(driver, policy, step, min(int(step) + SLICE, args.steps), over)
        with rescue(saver, learner):
            logger.progress(args.steps, left=end - time.monotonic(), **learner.progress())
            if learner.ready and not over() and report_due():
                saver.before_report(learner.updates)
                report(learner, logger, evaluate, stop)
            if log_due():
                logged = log()
        saver(learner.updates)
    with rescue(saver, learner):
        if logged != step:
            log()
    saver.finish()


def report(learner: Learner, logger: logging.Logger, evaluate: Any, stop: signals.Stop) -> None:
    """Add the metrics of a report, and of an evaluation if there is one."""
    with timer.section('report'), logger.busy('Reporting'):
        logger.add(learner.report(), prefix='report')
    if evaluate:
        with timer.section('eval'), logger.busy('Evaluating'):
            evaluate(stop)


@contextlib.contextmanager
def rescue(
    saver: Saver, learner: Learner, whole: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Save before anything ends the run, if agent and replay are whole in spite of it.

    An agent whose numbers are not finite any more is not.
    """
    try:
        yield
    except NotFinite:
        raise
    except BaseException:
        if whole():
            saver.rescue(learner.updates)
        raise


def play(
    driver: Any, policy: Callable, step: Any, until: float, over: Callable[[], bool]
) -> None:
    """Step all environments together until a step, or until the run is to end."""
    with timer.section('driver'):
        while step < until and not over():
            driver(policy, steps=1)


def restore(cp: checkpoint.Checkpoint, learner: Learner, args: Any) -> None:
    """Go on from this run's checkpoint, or else begin with another run's agent, if asked."""
    step, replay = cp.parts['step'], cp.parts['replay']
    if not cp.exists():
        if args.from_checkpoint:
            start.load_agent(cp.parts['agent'], args, args.from_checkpoint_regex)
        for name in {'replay', 'replay_eval'} & {*cp.parts}:
            cp.parts[name].load()  # files that were put into its folder
        return
    folder = cp.load(optional=['replay_eval'])  # train has none
    print(f'Resumed {folder}: step {int(step):,}, {len(replay):,} replay items', flush=True)
    if args.from_checkpoint:
        print('run.from_checkpoint is not used: this run has a checkpoint of its own')
    if learner.ratio.started and not learner.ready:
        print(
            f'Replay data are missing: {len(replay):,} items; training waits for '
            f'{learner.minimum:,}',
            flush=True,
        )
        learner.ratio.reset()
