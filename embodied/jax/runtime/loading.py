"""What an agent takes of the arrays that another one saved, by their names."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core.errors import UserError

Arrays = Mapping[str, Any]  # arrays by name; of the own ones only the shapes count


def select(params: Arrays, own: Arrays, regex: str) -> dict[str, Any]:
    """The arrays whose names match and that there are here; prints which those are.

    Raises UserError if there is none, or the regular expression is broken.
    """
    try:
        matched = {k for k in params if re.fullmatch(regex, k)} & {*own}
    except re.error as error:
        raise UserError(f'Broken regular expression {regex!r}: {error}') from error
    if not matched:
        raise UserError(
            f'No parameter matches --run.from_checkpoint_regex {regex!r}; names look like '
            f'{", ".join(list(own)[:3])}.'
        )
    print(_list(f'matched {regex!r}', matched))
    print(_list('new, as initialised', {*own} - matched))
    print(_list('dropped from the file', {*params} - matched), flush=True)
    return {k: params[k] for k in params if k in matched}


def check_fit(params: Arrays, own: Arrays, strict: bool) -> None:
    """Raise UserError if shapes differ or there is none of a name; strict: nor may any lack."""
    wrong = [
        f'{k}: {_shape(params[k])} in the file, {_shape(own[k])} here'
        for k in own
        if k in params and np.shape(params[k]) != np.shape(own[k])
    ]
    wrong += [f'{k}: only in the file' for k in params if k not in own]
    if strict:
        wrong += [f'{k}: missing in the file' for k in own if k not in params]
    if wrong:
        more = f' (and {len(wrong) - 3} more)' if len(wrong) > 3 else ''
        raise UserError(
            'The checkpoint does not fit the model of this config: '
            + '; '.join(wrong[:3]) + more
        )  # fmt: skip


def _list(title: str, names: set[str], most: int = 6) -> str:
    """A line with the number of names and the first ones."""
    more = ', …' if len(names) > most else ''
    return f'  {title}: {len(names)} ({", ".join(sorted(names)[:most])}{more})'


def _shape(x: Any) -> str:
    return str(tuple(np.shape(x)))
