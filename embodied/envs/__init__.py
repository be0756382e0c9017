"""Suites of environments: one adapter per module, imported when one of its tasks is built.

An adapter imports the package of its suite in its constructor, so that naming a suite, listing
its tasks and refusing an unknown one need none of these packages.
"""

import difflib
import importlib
import re
from types import ModuleType
from typing import Any, NamedTuple

from embodied.core.base import Env
from embodied.core.errors import UserError


class Suite(NamedTuple):
    """Where the adapter is, `module:callable`, and its tasks.

    Where `tasks` is None the adapter knows the names that there are; `example` is one of them.
    """

    factory: str
    tasks: tuple[str, ...] | None
    example: str = ''


SUITES = {
    'atari': Suite('atari:Atari', None, 'pong'),
    'atari100k': Suite('atari:Atari', None, 'pong'),
    'bsuite': Suite('bsuite:make', None, 'catch/0'),
    'crafter': Suite('crafter:Crafter', ('reward', 'noreward')),
    'dm': Suite('dm:make', None, 'yourmodule:function'),
    'dmlab': Suite('dmlab:DMLab', None, 'explore_goal_locations_small'),
    'dmc': Suite('dmc:make', None, 'walker_walk'),
    'dummy': Suite('dummy:Dummy', ('disc', 'cont')),
    'gym': Suite('gym:make', None, 'CartPole-v1'),
    'langroom': Suite('langroom:LangRoom', ('run', 'answer-only', 'answer-and-echo', 'echo')),
    'loconav': Suite('loconav:make', None, 'ant_maze_m'),
    'memmaze': Suite('memmaze:make', None, '9x9'),
    'minecraft': Suite('minecraft:Minecraft', ('wood', 'climb', 'diamond')),
    'pinpad': Suite('pinpad:PinPad', ('three', 'four', 'five', 'six', 'seven', 'eight')),
    'procgen': Suite('procgen:make', None, 'coinrun'),
}

# What apt calls the libraries that suites draw with.
SYSTEM = {
    **dict.fromkeys(('dmc', 'loconav', 'memmaze'), 'libegl1 libosmesa6'),
    'procgen': 'libqt5gui5',
}
_DMC = ('dm-control>=1.0.31,<1.1', 'mujoco>=3.3,<4')
# What pip installs for suites: the extras of pyproject.toml.
PACKAGES = {
    **dict.fromkeys(('atari', 'atari100k'), ('ale-py>=0.11,<0.13',)),
    'bsuite': ('bsuite>=0.3.6,<0.4',),
    'crafter': ('crafter>=1.8.3,<2',),
    'dm': ('dm-env>=1.6',),
    'dmc': _DMC,
    'gym': ('gymnasium>=1.0,<2',),
    'langroom': ('langroom>=0.1.2,<0.2',),
    'loconav': (*_DMC, 'labmaze>=1.0.6'),
    'memmaze': ('memory-maze>=1.0.3,<2', *_DMC),
    'procgen': ('envpool>=1.2.5,<2',),
}
BY_HAND = ('dmlab', 'minecraft')  # no package index has what they need


def find(task: str) -> tuple[str, str]:
    """Split SUITE_TASK at the first underscore; UserError where one of them is unknown."""
    suite, _, name = task.partition('_')
    if suite not in SUITES:
        gym = ':' in task or re.search(r'-v\d+$', task)
        hint = f' For Gymnasium: --task gym_{task}' if gym else _nearest(suite, SUITES)
        raise UserError(
            f'Unknown suite {suite!r} in --task {task}; expected SUITE_TASK with one of '
            f'{", ".join(SUITES)}.{hint}'
        )
    tasks = SUITES[suite].tasks
    if not name or (tasks and name not in tasks):
        expected = ', '.join(f'{suite}_{x}' for x in tasks or (SUITES[suite].example,))
        raise UserError(
            f'Unknown task {name!r} in --task {task}; expected for example {expected}.'
            f'{_nearest(task, [f"{suite}_{x}" for x in tasks or ()])}'
        )
    return suite, name


def make(task: str, seed: int = 0, **options: Any) -> Env:
    """Build the environment SUITE_TASK, unwrapped; options are those of the suite's adapter."""
    suite, name = find(task)
    module, attribute = SUITES[suite].factory.split(':')
    factory = getattr(importlib.import_module(f'{__name__}.{module}'), attribute)
    return factory(name, seed=seed, **options)


def require(package: str, suite: str) -> ModuleType:
    """Import the package that a suite stands on.

    Raises a UserError that names the pip extra and the packages of the operating system.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as e:
        raise UserError(
            f'The suite {suite!r} needs the package {e.name!r}, which is not installed.\n'
            f'{_how(suite)}'
        ) from e
    except (ImportError, OSError) as e:
        if suite not in SYSTEM:
            raise
        raise missing_library(suite, e) from e


def missing_library(suite: str, error: Any) -> UserError:
    """The error that a suite lacks a library of the operating system."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(f'The suite {suite!r} lacks a system library: {line}\n{_how(suite)}')


def _how(suite: str) -> str:
    """How the packages of a suite are installed."""
    if suite in BY_HAND:
        return (
            'It is installed by hand (docs/envs.md), also for another Python, which '
            '--run.env_python names.'
        )
    packages = ' '.join(f"'{x}'" for x in PACKAGES[suite])
    system = f'; on Debian also apt-get install {SYSTEM[suite]}' if suite in SYSTEM else ''
    return (
        f"Run: pip install {packages} (in a clone: pip install -e '.[{suite}]'){system}; "
        'the Dockerfile shows a full set-up.'
    )


def _nearest(name: str, options: Any) -> str:
    close = difflib.get_close_matches(name, list(options), n=2)
    return f' Nearest: {", ".join(close)}.' if close else ''
