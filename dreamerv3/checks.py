"""What a resolved config must satisfy, checked before anything is built or compiled.

Every check raises a UserError that says what was found, what was expected, and which flag to
change.
"""

import difflib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from dreamerv3 import bounds, config_help, outputs
from embodied import UserError, envs
from embodied.run import start


def check(config: elements.Config, defaults: Mapping[str, Any]) -> None:
    """Run every check that needs the config alone. defaults: by flat key, as examples."""
    _check_names(config)
    _check_later(config, defaults)
    bounds.check(config.flat, defaults)
    _check_relations(config)
    _check_parallel(config)
    _check_lengths(config)
    _check_replay(config)
    _check_paths(config)


def check_url(logdir: str) -> None:
    """Refuse `s3://…` and the like, which would become a local folder of that name."""
    if scheme := re.match(r'[A-Za-z][A-Za-z0-9+.-]*://', logdir):
        raise UserError(
            f'--logdir {logdir}: {scheme[0]} is not supported; give a folder of this machine '
            'or a mounted one.'
        )


def check_image_sizes(obs_space: Mapping[str, Any], config: elements.Config) -> None:
    """Refuse observations that the encoder and decoder cannot take.

    Each stage halves an image, so that its sides must come down to 3…16 without a remainder.
    """
    suite = config.task.partition('_')[0]
    flag = f'--env.{suite}.size' if f'env.{suite}.size' in config.flat else None
    for key, space in obs_space.items():
        if key.startswith('log/'):
            continue
        if space.dtype == np.uint8 and len(space.shape) == 2 and min(space.shape) > 16:
            raise UserError(
                f'Observation {key!r} is uint8 of shape {space.shape}, which looks like an '
                'image without channels; add an axis, (height, width, 1), in the environment.'
            )
        if len(space.shape) < 3:
            continue
        if len(space.shape) > 3 or space.dtype != np.uint8:
            raise UserError(
                f'Observation {key!r} is {space.dtype} of shape {space.shape}; expected uint8 '
                'images (height, width, channels) or values with up to two axes.'
            )
        for part in ('enc', 'dec'):
            _check_sides(key, space.shape[:2], part, config, flag)
        _check_bspace(key, config)


def scripts() -> tuple[str, ...]:
    """Return the values of --script."""
    return bounds.choices('script')


def nearest(name: str, options: Iterable[str], prefix: str = '') -> str:
    """A sentence with up to three options that look like the name, or nothing."""
    close = difflib.get_close_matches(name, list(options), n=3, cutoff=0.55)
    return f' Nearest: {", ".join(prefix + x for x in close)}.' if close else ''


def stray(word: str, blocks: Sequence[str]) -> str:
    """What to say of an argument before the first flag, such as `train`."""
    block = f' For the block: --configs {word}.' if word in blocks else ''
    close = nearest(word, scripts(), '--script ') or nearest(word, blocks, '--configs ')
    return (
        f'Expected a flag such as --task, found {word!r}.{hint(word) or block or close} '
        'See --help.'
    )


def hint(word: str) -> str:
    """A sentence with the flag of which a word is a value, or nothing."""
    if word in scripts():
        return f' For the script: --script {word}.'
    task = word.partition('_')[0] in envs.SUITES and '_' in word
    return f' For the task: --task {word}.' if task else ''


def _check_sides(key, sides, part, config, flag) -> None:
    net = config.agent[part].simple
    stages = len(net.mults) - net.outer
    factor = 2**stages
    if all(x % factor == 0 and 3 <= x // factor <= 16 for x in sides):
        return
    good = [x * factor for x in range(3, 17)]
    instead = f'Change {flag}' if flag else 'Resize the images in the environment'
    raise UserError(
        f'Observation {key!r} has images of {sides[0]}x{sides[1]}, but {stages} halvings '
        f'(--agent.{part}.simple.mults) must lead to sides of 3 to 16.\n'
        f'{instead}; sides that work: {", ".join(map(str, good))}.'
    )


def _check_bspace(key, config) -> None:
    dec, deter = config.agent.dec.simple, config.agent.dyn.rssm.deter
    depth = dec.depth * dec.mults[-1]
    if dec.bspace and (deter % dec.bspace or depth % dec.bspace):
        raise UserError(
            f'--agent.dec.simple.bspace {dec.bspace} must divide both the deter size {deter} '
            f'and the last depth {depth} of the decoder to decode {key!r}; 0 turns it off.'
        )


def _check_names(config: elements.Config) -> None:
    if config.script not in scripts():
        hint = nearest(config.script, scripts())
        raise UserError(
            f'Unknown script {config.script!r} in --script; expected '
            f'{" or ".join(scripts())}.{hint}'
        )
    envs.find(config.task)
    for name in config.logger.outputs:
        if name not in outputs.MAKERS:
            raise UserError(
                f'Output {name!r} in --logger.outputs is not available; expected '
                f'{", ".join(outputs.MAKERS)}.{nearest(name, outputs.MAKERS)}'
            )


def _check_later(config: elements.Config, defaults: Mapping[str, Any]) -> None:
    for key, default in defaults.items():
        number = key == 'replica' and config.script == 'parallel_env'  # of the environment
        if (later := config_help.find(key).later) and not number:
            refuse_later(key, config.flat[key], default, later)


def refuse_later(key: str, value: Any, default: Any, topic: str) -> None:
    """Raise UserError for another value than the default of a key that awaits a later version.

    topic: what comes then, so that none of its values is silently ignored.
    """
    if value != default:
        raise UserError(
            f'--{key} {value}: {topic} in a later version; this one has {default!r} only.'
        )


def _check_relations(config: elements.Config) -> None:
    """Raise UserError for values that do not fit each other."""
    for key, value in config.flat.items():
        if key.startswith('env.') and key.endswith('.size') and len(value) != 2:
            raise UserError(f'--{key} takes height and width; found {list(value)}.')
    agent, rssm = config.agent, config.agent.dyn.rssm
    if agent.policy.minstd > agent.policy.maxstd:
        raise UserError(
            f'--agent.policy.minstd {agent.policy.minstd:g} is above --agent.policy.maxstd '
            f'{agent.policy.maxstd:g}.'
        )
    if agent.retnorm.perclo >= agent.retnorm.perchi:
        raise UserError(
            f'--agent.retnorm.perclo {agent.retnorm.perclo:g} must be less than '
            f'--agent.retnorm.perchi {agent.retnorm.perchi:g}.'
        )
    if agent.opt.schedule != 'const' and agent.opt.anneal <= agent.opt.warmup:
        raise UserError(
            f'--agent.opt.schedule {agent.opt.schedule} needs an --agent.opt.anneal '
            f'({agent.opt.anneal}) above --agent.opt.warmup ({agent.opt.warmup}).'
        )
    if rssm.deter % rssm.blocks:
        raise UserError(
            f'The deter size {rssm.deter} must be a multiple of --agent.dyn.rssm.blocks '
            f'{rssm.blocks}.'
        )


def _check_parallel(config: elements.Config) -> None:
    run = config.run
    if not config.script.startswith('parallel'):
        return
    from embodied.core import rpc

    for name in ('actor_addr', 'replay_addr', 'logger_addr'):
        try:
            rpc.split(run[name].replace('{auto}', '1'))
        except UserError as error:
            raise UserError(f'--run.{name}: {error}') from None
    if config.script == 'parallel_env' and config.replica >= run.envs + run.eval_envs:
        raise UserError(
            f'--replica {config.replica} is none of the {run.envs} + {run.eval_envs} '
            'environments of --run.envs and --run.eval_envs, which count from 0.'
        )


def _check_lengths(config: elements.Config) -> None:
    start.check_lengths(config)
    if config.batch_length < 2 and config.agent.repval_loss:
        raise UserError(
            f'--batch_length {config.batch_length} leaves no step to learn values from; take '
            'at least 2, or --agent.repval_loss False.'
        )


def _check_replay(config: elements.Config) -> None:
    start.check_capacity(int(config.replay.size), config)
    fracs = dict(config.replay.fracs)
    if abs(sum(fracs.values()) - 1) > 1e-6:
        shares = ', '.join(f'{k} {v:g}' for k, v in fracs.items())
        raise UserError(f'--replay.fracs must be shares that sum to 1; found {shares}.')
    if fracs['uniform'] < 1 and config.jax.compute_dtype == 'float16':
        raise UserError(
            f'--replay.fracs.uniform {fracs["uniform"]:g} needs --jax.compute_dtype bfloat16 '
            'or float32: in float16 losses overflow now and then, and are no priorities.'
        )


def _check_paths(config: elements.Config) -> None:
    check_url(config.logdir)
    if os.path.exists(config.logdir) and not os.path.isdir(config.logdir):
        raise UserError(f'--logdir {config.logdir} is a file; expected a folder.')
    python = config.run.env_python
    if python and shutil.which(os.path.expanduser(python)) is None:
        raise UserError(f'--run.env_python {python} is no program that can be run.')
    source = os.path.expanduser(config.run.from_checkpoint)
    if source and not os.path.exists(source):
        raise UserError(f'--run.from_checkpoint {source} does not exist.')
    if source and config.random_agent:
        raise UserError('--random_agent has nothing to load; take --run.from_checkpoint away.')
