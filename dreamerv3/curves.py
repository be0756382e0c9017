"""Learning curves of runs: read, put on one grid, and averaged over seeds."""

import csv
import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Mapping

import numpy as np

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
    """Read a run: its score and, on request, its losses."""
    from ruamel.yaml import YAML

    path = folder / 'config.yaml'
    config = YAML(typ='safe').load(path.read_text(encoding='utf-8')) if path.exists() else {}
    task = config.get('task', folder.name)
    curves = {SCORE: _curves(folder / 'scores.jsonl', re.compile(SCORE)).get(SCORE, _empty())}
    if losses and (folder / 'metrics.jsonl').exists():
        curves |= _curves(folder / 'metrics.jsonl', LOSSES)
    return Run(folder, task, config.get('method', 'name'), _domain(task, config), curves)


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


def _domain(task: str, config: Mapping) -> str:
    """The domain of the published scores that a task belongs to."""
    suite = task.partition('_')[0]
    if suite == 'dmc':
        dmc = config.get('env', {}).get('dmc', {})
        seen = [key for key in ('proprio', 'image') if dmc.get(key)]
        return {'proprio': 'dmc_proprio', 'image': 'dmc_vision'}.get('+'.join(seen), '')
    return DOMAINS.get(suite, suite)


def _curves(path: pathlib.Path, pattern: re.Pattern) -> dict[str, Curve]:
    """The finite values of the metrics that match, from a file of JSON lines."""
    points: dict[str, list[tuple[float, float]]] = {}
    with open(path, encoding='utf-8') as file:
        for line in file:
            if not line.endswith('\n'):  # a run is writing it
                break
            row = json.loads(line)
            for name, value in row.items():
                if value is not None and pattern.match(name):
                    points.setdefault(name, []).append((row['step'], value))
    arrays = {k: np.array(sorted(v), float).reshape(-1, 2).T for k, v in points.items()}
    return {k: (x[0], x[1]) for k, x in sorted(arrays.items())}


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
