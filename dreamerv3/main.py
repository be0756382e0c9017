"""The command line: flags -> config -> factories -> run script.

Runs as `python dreamerv3/main.py` from a clone, as `python -m dreamerv3`, and as the installed
command `dreamerv3`.
"""

import pathlib
import sys

if not __package__:
    # Started as a file. This folder would shadow packages of the same name as its modules, and
    # the clone may not be installed. Processes that are spawned later take over sys.path.
    here = pathlib.Path(__file__).resolve().parent
    sys.path[:] = [x for x in sys.path if pathlib.Path(x).resolve() not in (here, here.parent)]
    sys.path.insert(0, str(here.parent))

from dreamerv3 import origin

try:
    origin.check()
except ImportError as e:
    print(f'Error: {e}', file=sys.stderr)
    raise SystemExit(2) from None

import functools
import importlib
import os
import traceback
from collections.abc import Callable, Sequence

import elements

import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories, resume, usage
from dreamerv3.environments import shifted
from embodied.core import foreign, leftover, output, signals, warn
from embodied.core.errors import NotFinite
from embodied.core.guest import Guest
from embodied.core.waiting import Wait

COMMANDS = {'view': 'dreamerv3.view', 'plot': 'dreamerv3.plot'}  # modules with a `main`


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the arguments say: one of the commands, or a script of configs.yaml.

    A user's mistake exits with 2, numbers that are no longer finite with 1, both in a few
    lines; an interrupt before anything runs with 130.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if argv and argv[0] in COMMANDS:
            importlib.import_module(COMMANDS[argv[0]]).main(argv[1:])
        elif (text := usage.answer(argv)) is not None:
            show(text)
        else:
            start(configs.resolve(argv))
    except embodied.UserError as e:
        print(f'Error: {e}', file=sys.stderr)
        raise SystemExit(2) from None
    except NotFinite as e:
        print(f'Error: {e}', file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print('Interrupted.', file=sys.stderr)
        raise SystemExit(130) from None


def show(text: str) -> None:
    """Print a text of the help, also to a pipe that ends early, such as `head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def start(config: elements.Config, make_env: Callable | None = None) -> None:
    """Say what is about to happen, and hand the factories to the script.

    The config is saved once the script has accepted it. make_env(index) replaces the
    environments of the task.
    """
    warn.begin()
    resume.check(config)
    texts = usage.facts(config), resume.text(config)
    print('\n'.join(filter(None, texts)), flush=True)
    try:
        run(config, make_env)
    except Exception as e:
        folder = pathlib.Path(config.logdir)
        if config.errfile and (folder.exists() or not isinstance(e, embodied.UserError)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / 'error').write_text(traceback.format_exc())
        raise


def run(config: elements.Config, make_env: Callable | None = None) -> None:
    """Run the script that the config names."""

    def bind(factory):
        return functools.partial(factory, config)

    env = make_env or bind(factories.make_env)

    def agent():
        with Wait(f'an environment of --task {config.task} to be made, for its spaces'):
            probe = Guest()(elsewhere(config, env), 0)
        return factories.make_agent(config, probe)

    replay, stream = bind(factories.make_replay), bind(factories.make_stream)
    logger, args = bind(factories.make_logger), factories.run_args(config)
    ready = bind(configs.save)
    if config.script == 'train':
        embodied.run.train(agent, replay, env, stream, logger, args, ready)
    elif config.script == 'train_eval':
        replays = [replay, functools.partial(replay, 'replay_eval', 'eval')]
        others = functools.partial(shifted, env, config.run.envs)
        embodied.run.train_eval(agent, *replays, env, others, stream, logger, args, ready)
    elif config.script == 'eval_only':
        embodied.run.eval_only(agent, env, logger, args, ready)
    elif config.script.startswith('parallel'):
        run_parallel(config, agent, elsewhere(config, env), replay, stream, logger)


def elsewhere(config: elements.Config, make_env: Callable) -> Callable:
    """The factory itself, or one whose environments live in the interpreter run.env_python."""
    python = config.run.env_python
    return functools.partial(foreign.make, python, make_env) if python else make_env


def run_parallel(
    config: elements.Config, agent: Callable, env: Callable, replay: Callable,
    stream: Callable, logger: Callable,
) -> None:  # fmt: skip
    """Run all of a parallel run, or the part that the script names."""
    args, parallel = factories.run_args(config), embodied.run.parallel
    replays = [replay, functools.partial(replay, 'replay_eval', 'eval')]
    others = functools.partial(shifted, env, config.run.envs)
    if config.script == 'parallel':
        ready = functools.partial(configs.save, config)
        parallel.combined(agent, *replays, env, others, stream, logger, args, ready)
    elif config.script == 'parallel_replay':
        parallel.parallel_replay(*replays, stream, args)
    elif config.script == 'parallel_envs':
        parallel.parallel_envs(env, others, args)
    elif config.script == 'parallel_env':
        is_eval = config.replica >= config.run.envs
        parallel.parallel_env(others if is_eval else env, config.replica, args, is_eval)


def entry() -> None:
    """`main` for a process of its own, which ends then, whatever environments left in it.

    It finds modules of the current folder last.
    """
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    output.guard()
    with leftover.not_waited_for(), signals.prompt_errors():
        main()
        signals.ignore()


if __name__ == '__main__':
    entry()
