"""What Gymnasium environments are and return, checked at once and in one sentence."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core.errors import UserError

STEP = '(observation, reward, terminated, truncated, info)'
RESET = '(observation, info)'


def name(env: Any) -> str:
    """The class of an environment, without its wrappers."""
    return type(getattr(env, 'unwrapped', env)).__name__


def check_env(env: Any) -> None:
    """Raise UserError unless this is one environment with one agent and two spaces."""
    space = getattr(env, 'observation_space', None)
    if not _is_space(space) and _has(env, 'possible_agents', 'observation_spaces', 'agents'):
        raise UserError(
            f'{name(env)} is an environment of several agents; expected one with a single '
            'agent. Give a wrapper in which one agent acts and the others are part of it.'
        )
    if _has(env, 'num_envs') and _has(env, 'single_observation_space', 'step_wait'):
        raise UserError(
            f'{name(env)} is a vector of {env.num_envs} environments; expected a function that '
            'makes a single one: run.envs says how many there are.'
        )
    for key in ('observation_space', 'action_space'):
        if not _is_space(getattr(env, key, None)):
            raise UserError(
                f'The {key} of {name(env)} is {_seen(getattr(env, key, None))}; expected a '
                'space of Gymnasium.'
            )


def reset_result(env: Any, result: Any) -> tuple[Any, Mapping]:
    """Observation and info that `reset` returned; with the old interface there is no info."""
    space = env.observation_space
    tuples = isinstance(getattr(space, 'spaces', None), (tuple, list))
    if isinstance(result, tuple) and len(result) == 2 and _is_info(result[1]):
        if not (tuples and space.contains(result)):
            return result[0], result[1] or {}
    elif result is None or (isinstance(result, tuple) and not tuples):
        raise UserError(f'{name(env)}.reset returned {_seen(result)}; expected {RESET}.')
    return result, {}


def step_result(env: Any, result: Any) -> tuple[Any, float, bool, bool, Mapping]:
    """The five values of `step`, of which the old interface has four, with `done` for two."""
    count = len(result) if isinstance(result, (tuple, list)) else 0
    if count not in (4, 5) or not _is_info(result[-1]):
        old = ' (or, as in the old Gym, observation, reward, done, info)'
        seen = _seen(result)
        if count in (4, 5):
            seen += f', the last of which is {_seen(result[-1])}'
        raise UserError(f'{name(env)}.step returned {seen}; expected {STEP}{old}.')
    obs, reward, *ends, info = result
    info = info or {}
    value = float(_number(env, 'reward', reward, 'one number'))
    if len(ends) == 2:
        words = ('terminated', 'truncated')
        terminated, truncated = (
            bool(_number(env, word, x, 'True or False'))
            for word, x in zip(words, ends, strict=True)
        )
        return obs, value, terminated, truncated, info
    done = bool(_number(env, 'done', ends[0], 'True or False'))
    truncated = bool(done and info.get('TimeLimit.truncated', False))
    return obs, value, done and not truncated, truncated, info


def observation(env: Any, space: Any, value: Any, path: str = '') -> None:
    """Raise UserError for a value without the keys, entries or numbers of its space.

    CheckSpaces names what there is beside them.
    """
    inner = getattr(space, 'spaces', None)
    if isinstance(inner, Mapping):
        if not isinstance(value, Mapping) or inner.keys() - value.keys():
            _refuse(env, path, value, f'a dict with the keys {sorted(map(str, inner))}')
        for key, part in inner.items():
            observation(env, part, value[key], f'{path}/{key}')
    elif inner is not None:
        if not isinstance(value, (tuple, list)) or len(value) < len(inner):
            _refuse(env, path, value, f'a tuple of {len(inner)} values')
        for index, part in enumerate(inner):
            observation(env, part, value[index], f'{path}/{index}')
    elif 0 not in (space.shape or ()):
        array = _array(value)
        if array is None or array.dtype.kind not in 'biuf' or array.shape != space.shape:
            _refuse(env, path, value, f'{space.dtype} numbers of shape {space.shape}')


def _refuse(env: Any, path: str, value: Any, expected: str) -> None:
    where = f'Entry {path[1:]!r} of the observation' if path else 'The observation'
    raise UserError(
        f'{where} of {name(env)} is {_seen(value)}; its observation_space says {expected}.'
    )


def _number(env: Any, what: str, value: Any, expected: str) -> Any:
    if isinstance(value, (bool, int, float)):  # as nearly all are
        return value
    array = _array(value)
    if array is None or array.size != 1 or array.dtype.kind not in 'biuf':
        raise UserError(
            f'{name(env)}.step returned a {what} that is {_seen(value)}; expected {expected}.'
        )
    return array.item()


def _array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except Exception:  # such as lists of unequal lengths, or tensors of another device
        return None


def _is_info(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _is_space(value: Any) -> bool:
    """Whether this is a space of Gymnasium or the old Gym, which are told by their methods."""
    return hasattr(value, 'contains') and hasattr(value, 'sample')


def _has(env: Any, *names: str) -> bool:
    return any(hasattr(x, n) for n in names for x in (env, getattr(env, 'unwrapped', env)))


def _seen(value: Any) -> str:
    """What was found, in a few words."""
    if isinstance(value, str):
        return f'text ({value!r:.40})'
    if isinstance(value, Mapping):
        return f'a dict with the keys {sorted(map(str, value))!s:.200}'
    if isinstance(value, (tuple, list)):
        return f'a {type(value).__name__} of {len(value)} values'
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if callable(value):
        return 'a method'
    array = _array(value)
    if array is None or array.dtype.kind == 'O':
        return f'a {type(value).__name__}'
    return f'{array.dtype} of shape {array.shape}'
