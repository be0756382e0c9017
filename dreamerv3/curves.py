"""Learning curves of runs: read, put on one grid, and averaged over seeds."""

import csv
import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dreamerv3 import config as configs
from embodied import UserError

PUBLISHED = pathlib.Path(__file__).parent / 'published_scores.csv'
DOMAINS = {'atari': 'atari57', 'dmlab': 'dmlab30', 'minecraft': 'minecraft_diamond'}
ALIASES = {'james_bond': 'jamesbond', 'cup_catch': 'ball_in_cup_catch'}
SCORE = 'episode/score'
LOSSES = re.compile(r'train/loss/')

Curve = tuple[np.ndarray, np.ndarray]  # steps, which rise, and values


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: where it lies, what it is, and its curves by metric."""

    folder: pathlib.Path
    task: str
    method: str
    domain: str  # of the published scores
    curves: Mapping[str, Curve]
    config: Mapping[str, Any]  # by dotted key; empty where there is none


@dataclasses.dataclass(frozen=True)
class Band:
    """Mean and deviation (of the population) over runs on a grid; NaN where there is none."""

    steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    runs: int


@dataclasses.dataclass(frozen=True)
class Published:
    """The final score of a task in the published runs."""

    score: float
    deviation: float
    steps: int
    seeds: int


def find(folders: Iterable[str | pathlib.Path]) -> list[pathlib.Path]:
    """The folders of runs: those given, and those below them. UserError if there is none."""
    found = []
    for folder in folders:
        folder = pathlib.Path(folder).expanduser()
        if not folder.is_dir():
            raise UserError(f'{folder} is no folder; expected a run or a folder of runs.')
        below = [folder / 'scores.jsonl', *sorted(folder.rglob('scores.jsonl'))]
        runs = [x.parent for x in below if x.is_file()]
        if not runs:
            raise UserError(f'There is no scores.jsonl in {folder} or below it.')
        found += runs
    return list(dict.fromkeys(found))


def read(folder: pathlib.Path, losses: bool = False) -> Run:
    """Read a run: its score and, on request, its losses.

    Damaged lines, and a damaged config, are skipped with a warning. Only plain files are read:
    a pipe of the same name would be waited for.
    """
    config = _config(folder / 'config.yaml')
    task = _name(config.get('task', folder.name))
    method = _name(config.get('method', 'name'))
    method += ', random agent' if config.get('random_agent') else ''
    curves = {SCORE: _curves(folder / 'scores.jsonl', re.compile(SCORE)).get(SCORE, _empty())}
    if losses:
        curves |= _curves(folder / 'metrics.jsonl', LOSSES)
    return Run(folder, task, method, _domain(task, config), curves, config)


def band(curves: Iterable[Curve], bins: int) -> Band:
    """Average curves on a grid of equal bins from 0 to the last step.

    A curve is the mean of its values in each bin, and straight where a bin has none between
    others. Before its first and after its last bin it does not count.
    """
    curves = [x for x in curves if len(x[0])]
    end = max((x[0][-1] for x in curves), default=0)
    edges = np.linspace(0, max(end, 1), bins + 1)
    rows = np.array([_binned(x, edges) for x in curves]).reshape(-1, bins)
    counts = np.isfinite(rows).sum(0)
    some = np.where(counts, counts, np.nan)
    mean = np.nansum(rows, 0) / some
    deviation = np.sqrt(np.nansum((rows - mean) ** 2, 0) / some)
    return Band((edges[:-1] + edges[1:]) / 2, mean, deviation, len(curves))


def published(run: Run) -> Published | None:
    """What the published runs of the same task reached, if it is among them."""
    suite, _, name = run.task.partition('_')
    name = ALIASES.get(name, name)
    suite = 'atari' if suite == 'atari100k' else suite
    with open(PUBLISHED, encoding='utf-8', newline='') as file:
        for row in csv.DictReader(line for line in file if not line.startswith('#')):
            if row['domain'] == run.domain and row['task'] == f'{suite}_{name}':
                return Published(
                    float(row['score']),
                    float(row['std_over_seeds']),
                    int(row['env_steps']),
                    int(row['seeds']),
                )
    return None


def final(curve: Curve) -> float:
    """The mean over the last tenth of the steps, as published scores are; NaN of nothing."""
    steps, values = curve
    return float(values[steps >= 0.9 * steps[-1]].mean()) if len(steps) else np.nan


def _empty() -> Curve:
    return np.zeros(0), np.zeros(0)


def _config(path: pathlib.Path) -> dict[str, Any]:
    """The config of a run by dotted key, empty if there is none that can be read."""
    if not path.is_file():
        return {}
    try:
        return configs.read_file(path)
    except UserError as error:
        reason = str(error).replace('--config ', '')
        print(f'Warning: {reason} The run is named by its folder.', flush=True)
        return {}


def _name(value: Any) -> str:
    """A value of YAML, or the name of a folder, as text that can be written."""
    return str(value).encode('utf-8', 'replace').decode()


def _domain(task: str, config: Mapping) -> str:
    """The domain of the published scores that a task belongs to."""
    suite = task.partition('_')[0]
    if suite == 'dmc':
        seen = [key for key in ('proprio', 'image') if config.get(f'env.dmc.{key}')]
        return {'proprio': 'dmc_proprio', 'image': 'dmc_vision'}.get('+'.join(seen), '')
    return DOMAINS.get(suite, suite)


def _curves(path: pathlib.Path, pattern: re.Pattern) -> dict[str, Curve]:
    """The finite values of the metrics that match, from a file of JSON lines."""
    points: dict[str, list[tuple[float, float]]] = {}
    for step, row in _rows(path):
        for name, value in row.items():
            if pattern.match(name) and (number := _number(value)) is not None:
                points.setdefault(name, []).append((step, number))
    arrays = {k: np.array(sorted(v), float).reshape(-1, 2).T for k, v in points.items()}
    return {k: (x[0], x[1]) for k, x in sorted(arrays.items())}


def _rows(path: pathlib.Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Step and content of each line of a plain file; warns of lines that are skipped."""
    if not path.is_file():
        return
    damaged = []
    try:
        with open(path, 'rb') as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b'\n'):  # a run is writing it
                    break
                try:
                    row = json.loads(line)
                    step = _number(row['step'])
                except (ValueError, TypeError, KeyError, RecursionError):
                    step = None
                if step is None:
                    damaged.append(number)
                else:
                    yield step, row
    except OSError as error:
        print(f'Warning: {path} cannot be read: {error.strerror}.', flush=True)
    if damaged:
        count = f'{len(damaged)} damaged line{"s" * (len(damaged) > 1)}'
        print(f'Warning: skipped {count} of {path}, first line {damaged[0]}.', flush=True)


def _number(value: Any) -> float | None:
    """A finite number of a JSON file as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # of an integer
        return None
    return number if math.isfinite(number) else None


def _binned(curve: Curve, edges: np.ndarray) -> np.ndarray:
    steps, values = curve
    places = np.clip(np.searchsorted(edges, steps, 'left') - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    sums = np.bincount(places, values, len(edges) - 1)
    full = np.flatnonzero(counts)
    centers = np.arange(len(counts))
    result = np.interp(centers, full, sums[full] / counts[full])
    result[: full[0]] = result[full[-1] + 1 :] = np.nan
    return result
