"""Environments that come from a user's function, or are an object that the user made."""

import contextlib
import inspect
import weakref
from typing import Any

import elements

import embodied
from dreamerv3 import environments
from embodied import UserError
from embodied.core import seeds, workers
from embodied.core.guest import Guest
from embodied.core.waiting import Wait


class Maker:
    """The environments of a run, by the function that makes them or the object that is one.

    The first one is made early, to know its name and to refuse what is none. It then serves the
    first who asks for number 0, so that no environment is made in vain. What crosses to
    another process makes all of its own.
    """

    def __init__(self, source: Any, config: elements.Config):
        self._source, self._config = source, config
        self._single = is_env(source)
        self._early: Any = None
        self._made: weakref.WeakValueDictionary = weakref.WeakValueDictionary()

    def __call__(self, index: int, step: int = 0, attempt: int = 0) -> embodied.Env:
        """Make environment number `index`, see `environments.make_env`."""
        env, seed = None, environments.env_seed(self._config, index, step, attempt)
        if index == 0:
            env, self._early = self._early, None
        if env is None:
            env = self._new(index, seed)
        env = _wrap(env, self._config, seed)
        return seeds.SeedGlobals(_Open(env) if self._single else env, seed)

    def __reduce__(self) -> tuple:
        return Maker, (self._source, self._config)

    def name(self) -> str:
        """What the environments are called, by the first one, which is made for that."""
        with Wait('the first environment to be made, for its name'):
            seed = environments.env_seed(self._config, 0)
            self._early = Guest()(self._new, 0, seed)
        adapt(self._early)
        spec = getattr(self._early, 'spec', None)
        inner = getattr(self._early, 'unwrapped', self._early)
        return getattr(spec, 'id', None) or type(inner).__name__

    def close(self) -> None:
        """Close the first one, if nobody has asked for it."""
        if self._early is not None and not self._single:
            workers.close(adapt(self._early), 'the first environment')
        self._early = None

    def _new(self, index: int, seed: int) -> Any:
        """Another environment; UserError where it is the same again."""
        if self._single:
            return self._source
        seeds.seed_globals(seed)
        env = call(self._source, index)
        inner = getattr(env, 'unwrapped', env)
        if self._made.get(id(inner)) is inner:
            raise UserError(
                f'The function that makes environments returned the same {_name(inner)} again; '
                'expected a new one at each call. A single environment may be given itself.'
            )
        with contextlib.suppress(TypeError):  # there are classes without weak references
            self._made[id(inner)] = inner
        return env


def make(
    source: Any, config: elements.Config, index: int, step: int = 0, attempt: int = 0
) -> embodied.Env:
    """Make environment number `index`; a plain function, which other interpreters find."""
    seed = environments.env_seed(config, index, step, attempt)
    seeds.seed_globals(seed)
    return seeds.SeedGlobals(_wrap(call(source, index), config, seed), seed)


def is_env(source: Any) -> bool:
    """Whether this is an environment rather than what makes them."""
    made = hasattr(source, 'step') and not isinstance(source, type)
    return made or not callable(source)


def adapt(env: Any, seed: int = 0, info: str = '') -> embodied.Env:
    """A Gymnasium environment or an `embodied.Env` as the latter."""
    if isinstance(env, embodied.Env):
        return env
    if isinstance(env, type) or not hasattr(env, 'step') or not hasattr(env, 'reset'):
        raise UserError(
            f'Expected a Gymnasium environment or an embodied.Env, found {_name(env)}.'
        )
    from embodied.envs.gym import FromGym

    return FromGym(env, seed, info)


def call(source: Any, index: int) -> Any:
    """What a function makes; one that needs an argument gets the index."""
    env = source(index) if _arguments(source) else source()
    if env is None:
        raise UserError(
            f'{_name(source)} returned None; expected a new environment (is `return` missing?).'
        )
    return env


def _arguments(source: Any) -> int:
    """How many arguments, 0 or 1, a function needs. Raises UserError if it needs more."""
    try:
        found = inspect.signature(source).parameters.values()
    except (TypeError, ValueError):  # some builtins do not say
        return 0
    needed = [x for x in found if x.default is x.empty and x.kind < x.VAR_POSITIONAL]
    named = [x for x in found if x.default is x.empty and x.kind == x.KEYWORD_ONLY]
    if len(needed) > 1 or named:
        names = ', '.join(x.name for x in (*needed, *named))
        raise UserError(
            f'{_name(source)} needs the arguments ({names}); expected a function without any, '
            'or with one, which is the index of the environment. Use a lambda to give them.'
        )
    return len(needed)


def _wrap(env: Any, config: elements.Config, seed: int) -> embodied.Env:
    env = adapt(env, seed, config.env.gym.info)
    return embodied.wrappers.wrap(env, config.run.strict_spaces)


def _name(thing: Any) -> str:
    if isinstance(thing, type):
        return f'the class {thing.__name__}'
    return getattr(thing, '__name__', None) or type(thing).__name__


class _Open(embodied.wrappers.Wrapper):
    """Leaves it to the user to close an environment that the user made."""

    def close(self) -> None:
        pass
