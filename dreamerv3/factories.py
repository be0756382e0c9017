"""What the run loops are made of, each built from the config alone.

The functions can be sent to other processes: they import JAX only where an agent that learns
is made.
"""

import functools
import pathlib
from typing import Any

import elements

import embodied
from dreamerv3 import checks, limits, outputs, reference
from dreamerv3.environments import env_options, make_env
from embodied import UserError, logging, selectors, streams
from embodied.core import workers
from embodied.core.guest import Guest

# Keys that an agent gets beside its own section.
AGENT_KEYS = (
    'logdir', 'seed', 'jax', 'batch_size', 'batch_length', 'report_length', 'replay_context',
    'consec_train', 'consec_report', 'replica', 'replicas',
)  # fmt: skip

# Keys that a run loop gets beside the `run` section.
RUN_KEYS = (
    'logdir', 'replica', 'replicas', 'seed', 'batch_size', 'batch_length', 'report_length',
    'consec_train', 'consec_report', 'replay_context',
)  # fmt: skip


def run_args(config: elements.Config) -> elements.Config:
    """The `run` section, flat, with the keys outside of it that the loops need."""
    return elements.Config(**config.run, **{key: config[key] for key in RUN_KEYS})


def make_agent(config: elements.Config, env: Any = None) -> Any:
    """Build the Dreamer agent, or with `random_agent` one that acts uniformly.

    Spaces come from the environment, by default that of the config, which is closed again.
    Spaces are checked before JAX is imported. Without logger.timer the timers of this process
    are turned off.
    """
    elements.timer.global_timer.enabled = config.logger.timer
    env = env or Guest()(make_env, config, 0)
    obs_space = {k: v for k, v in env.obs_space.items() if not k.startswith('log/')}
    act_space = {k: v for k, v in env.act_space.items() if k != 'reset'}
    workers.close(env, f'the environment of --task {config.task} that told its spaces')
    if not act_space:
        raise UserError(
            f'The environment of --task {config.task} has no action beside `reset`; expected '
            'at least one in its act_space.'
        )
    if config.random_agent:
        return embodied.RandomAgent(obs_space, act_space, seed=config.seed)
    checks.check_image_sizes(obs_space, config)
    limits.check(obs_space, act_space)
    from embodied.jax.runtime.setup import compute_dtype, setup

    setup(config.jax)
    config = config.update({'jax.compute_dtype': compute_dtype(config.jax.compute_dtype)})
    from dreamerv3.agent import Agent

    if config.script != 'eval_only':
        _check_needs(config, obs_space, act_space)
    agent = Agent(obs_space, act_space, agent_config(config))
    print(agent.describe(), flush=True)
    return agent


def agent_config(config: elements.Config) -> elements.Config:
    """The `agent` section with the keys outside of it that the agent needs."""
    return elements.Config(
        **config.agent,
        **{key: config[key] for key in AGENT_KEYS},
        replay_priority=config.replay.fracs.priority > 0,
    )


def _check_needs(config: elements.Config, obs_space: dict, act_space: dict) -> None:
    """Print what the model needs, before anything is compiled for it.

    Raises UserError where that is hopeless, but with `force`.
    """
    import jax

    from dreamerv3 import machine, needs

    device = jax.devices()[0]  # all are of one kind
    rate = None
    if device.platform == 'cpu':
        rate = machine.matmul_rate(device, config.jax.compute_dtype)
    free = machine.free_memory(device)
    spaces = obs_space, act_space
    for text in (
        needs.describe(config, *spaces, free, rate),
        needs.duration(config, *spaces, rate),
    ):
        if text:
            print(text, flush=True)
    if not config.force and (text := needs.refusal(config, *spaces, free, rate)):
        raise UserError(text)


def make_replay(
    config: elements.Config, folder: str = 'replay', mode: str = 'train'
) -> 'embodied.Replay':
    """Build the replay of logdir/folder, for train or eval, whose items fit the mode's stream.

    The eval replay has a tenth of the size, no online queue, and draws uniformly. Files of the
    reference in the folder load with latents converted to ours.
    """
    train = mode == 'train'
    settings = config.replay
    selector = selectors.make(settings.fracs, settings.prio, settings.recexp, config.seed)
    length, consec = _chunks(config, mode)
    return embodied.Replay(
        length=length * consec + config.replay_context,
        capacity=int(settings.size if train else settings.size / 10),
        directory=pathlib.Path(config.logdir) / folder,
        chunksize=settings.chunksize,
        online=settings.online and train,
        selector=selector if train else None,
        name=folder,
        seed=config.seed,
        storage=settings.storage,
        convert=functools.partial(_convert, config),
    )


def _convert(config: elements.Config, arrays: dict) -> dict:
    """Latents of a file as the agent stores them.

    A process that is not the agent's does not know what jax.compute_dtype auto is, and leaves
    deter as it was.
    """
    dtype = config.jax.compute_dtype
    if config.script in ('train', 'train_eval') and not config.random_agent:
        from embodied.jax.runtime.setup import compute_dtype

        dtype = compute_dtype(dtype)
    return reference.convert_chunk(arrays, dtype)


def make_stream(
    config: elements.Config, replay: 'embodied.Replay', mode: str
) -> 'embodied.Stream':
    """Batches from a replay for train, report or eval, cut into consecutive chunks."""
    length, consec = _chunks(config, mode)
    return streams.Consec(
        streams.Stateless(functools.partial(replay.sample, config.batch_size, mode)),
        length=length,
        consec=consec,
        prefix=config.replay_context,
        strict=mode == 'train',
        contiguous=True,
    )


def make_logger(config: elements.Config) -> 'embodied.logging.Logger':
    """The terminal and the outputs that the config names, all in the logdir.

    The x axis counts environment frames: steps times the suite's action repeat. Turns the
    timers of this process off without logger.timer.
    """
    elements.timer.global_timer.enabled = config.logger.timer
    repeat = env_options(config).get('repeat', 1)
    return logging.Logger(elements.Counter(), outputs.make(config), multiplier=repeat)


def _chunks(config: elements.Config, mode: str) -> tuple[int, int]:
    """Length and number of the chunks of a sequence."""
    if mode == 'train':
        return config.batch_length, config.consec_train
    return config.report_length, config.consec_report
