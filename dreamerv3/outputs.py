"""Where the metrics of a run go: the terminal, and what logger.outputs names."""

import pathlib
from collections.abc import Callable
from typing import Any

import elements

from embodied import UserError, logging


def make(config: elements.Config) -> list[Any]:
    """The outputs of a config, in the order in which they get what is written.

    The terminal prints at once, so that its lines keep their place among those of the run, and
    videos are encoded as they are filmed; every other output has a thread of its own. One whose
    package is missing is left out with a warning.
    """
    outputs: list[Any] = [logging.Terminal(config.logger.filter)]
    for name in config.logger.outputs:
        try:
            outputs += [logging.Background(output) for output in MAKERS[name](config)]
        except UserError as error:
            print(f'Warning: {error} The other outputs go on.', flush=True)
    if config.logger.videos:
        outputs.append(logging.Videos(config.logdir, config.logger.fps))
    return outputs


def _jsonl(config: elements.Config) -> list[Any]:
    metrics = logging.JSONL(config.logdir, 'metrics.jsonl')
    return [metrics, logging.JSONL(config.logdir, 'scores.jsonl', '^episode/score$')]


def _tensorboard(config: elements.Config) -> list[Any]:
    return [logging.TensorBoard(config.logdir, config.logger.fps)]


def _scope(config: elements.Config) -> list[Any]:
    return [logging.Scope(config.logdir, config.logger.fps)]


def _wandb(config: elements.Config) -> list[Any]:
    return [logging.WandB(config.logdir, _title(config), config.flat, config.logger.fps)]


def _mlflow(config: elements.Config) -> list[Any]:
    return [logging.MLFlow(config.logdir, _title(config), config.flat, config.logger.fps)]


def _expa(config: elements.Config) -> list[Any]:
    return [logging.Expa(config.logdir, 'dreamerv3', config.logger.user, config.flat)]


def _title(config: elements.Config) -> str:
    """The name of a run beside others."""
    return f'{config.task} {config.method} {pathlib.Path(config.logdir).name}'


MAKERS: dict[str, Callable[[elements.Config], list[Any]]] = {
    'jsonl': _jsonl,
    'tensorboard': _tensorboard,
    'wandb': _wandb,
    'scope': _scope,
    'mlflow': _mlflow,
    'expa': _expa,
}
