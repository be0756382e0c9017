"""What eval_only takes over of the run whose agent plays, and what it does not."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

STEPS, EPISODES = 'run.steps', 'run.episodes'


def config_of(flags: Mapping[str, Any]) -> str | None:
    """The config.yaml of the run whose agent is to be evaluated, if that run lies there."""
    source = flags.get('run.from_checkpoint', [])
    if flags.get('script') != ['eval_only'] or len(source) != 1:
        return None
    folder = pathlib.Path(source[0]).expanduser().absolute()
    runs = [x for x in folder.parents if x / 'ckpt' in (folder, *folder.parents)]
    for run in (folder, *runs):
        if (run / 'config.yaml').is_file():
            return str(run / 'config.yaml')
    return None


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
