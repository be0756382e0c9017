"""What eval_only takes over of the run whose agent plays, and what it does not."""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

STEPS, EPISODES = 'run.steps', 'run.episodes'


def config_of(flags: Mapping[str, Any]) -> str | None:
    """The config.yaml of the run whose agent is to be evaluated, if that run lies there."""
    source = flags.get('run.from_checkpoint', [])
    alone = flags.get('script') == ['eval_only'] and len(source) == 1
    return find(source[0]) if alone else None


def find(source: str | os.PathLike) -> str | None:
    """The config.yaml of a run, given its folder, its ckpt folder or one of its checkpoints."""
    folder = pathlib.Path(source).expanduser().absolute()
    runs = [x for x in folder.parents if x / 'ckpt' in (folder, *folder.parents)]
    found = [x / 'config.yaml' for x in (folder, *runs) if (x / 'config.yaml').is_file()]
    return str(found[0]) if found else None


def limits(
    values: Mapping[str, Any], given: list[Mapping[str, Any]], default: float
) -> dict[str, Any]:
    """What to change in the flat values of a config, since episodes end an evaluation.

    How long training lasted, which a block or the config of a run says, would end it before.
    given: the flags, and the files of evaluations; what one of them says of steps counts.
    """
    if values['script'] != 'eval_only' or not values[EPISODES]:
        return {}
    if any(re.fullmatch(key, STEPS) for keys in given for key in keys):
        return {}
    return {STEPS: default}
