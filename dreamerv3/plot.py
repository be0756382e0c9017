"""`dreamerv3 plot LOGDIR… --out FILE`: learning curves of runs as a picture or a static page.

One panel per task, one line per method: the mean over its runs, with their deviation as a
band. Where a task is among the published runs, their final score is a dashed line.
"""

import argparse
import html
import io
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamerv3 import curves, plottext
from dreamerv3.grouping import Groups, group, trained, warn
from embodied import UserError

FORMATS = ('.png', '.svg', '.pdf', '.html')
COLUMNS = 3  # of panels

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font-family: sans-serif; margin: 2em; color: #222 }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse; margin-top: 1em }}
td, th {{ padding: .3em .9em; text-align: right; border-bottom: 1px solid #ddd }}
td:nth-child(-n+2), th:nth-child(-n+2) {{ text-align: left }}
</style></head><body>
<h1>{title}</h1>
{figure}
<table><tr><th>task</th><th>method</th><th>runs</th><th>steps</th>
<th>score of the last tenth</th><th>published</th></tr>
{rows}
</table></body></html>
"""


def main(argv: Sequence[str]) -> None:
    """Draw what the arguments name. Raises UserError for folders and files that do not fit."""
    parser = argparse.ArgumentParser(
        'dreamerv3 plot', description='Draw scores over env steps.'
    )
    parser.add_argument('logdirs', nargs='+', metavar='LOGDIR', help='runs, or folders of runs')
    parser.add_argument('--out', required=True, help=f'file: {", ".join(FORMATS)}')
    parser.add_argument('--losses', action='store_true', help='draw the losses as well')
    parser.add_argument(
        '--by', action='append', default=[], metavar='KEY', help='a line per value of the key'
    )
    parser.add_argument('--bins', type=int, default=50, help='points of a curve')
    args = parser.parse_args(argv)
    out = pathlib.Path(args.out).expanduser()
    if out.suffix.lower() not in FORMATS:
        raise UserError(f'--out {args.out} must end in one of {", ".join(FORMATS)}.')
    if args.bins < 1:
        raise UserError(f'--bins must be at least 1; found {args.bins}.')
    runs = trained(curves.read(x, args.losses) for x in curves.find(args.logdirs))
    groups = group(runs, args.by)
    warn(groups)
    write(groups, out, args.bins)
    count = sum(len(runs) for methods in groups.values() for runs in methods.values())
    print(f'Wrote {out}: {count} runs of {", ".join(groups)}')


def write(groups: Groups, out: pathlib.Path, bins: int) -> None:
    """Draw into a file, in the format of its ending."""
    figure = draw(groups, bins)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() == '.html':
            out.write_text(page(groups, figure), encoding='utf-8')
        else:
            figure.savefig(out, dpi=120)
    except OSError as error:
        raise UserError(f'Cannot write --out {out}: {error.strerror}.') from error


def draw(groups: Groups, bins: int) -> Any:
    """A figure with a panel for each task, and one for each of its losses."""
    from matplotlib.figure import Figure

    panels = [(task, name) for task in groups for name in _metrics(groups[task])]
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure((4.6 * columns, 3.4 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, (task, name) in zip(axes, panels, strict=False):
        _panel(axis, task, name, groups[task], bins)
    for axis in list(axes)[len(panels) :]:
        axis.set_axis_off()
    return figure


def page(groups: Groups, figure: Any) -> str:
    """A page without scripts or other files: the figure and a table of final scores."""
    file = io.StringIO()
    figure.savefig(file, format='svg', metadata={'Date': None})
    svg = file.getvalue()
    rows = [
        '<tr>'
        + ''.join(f'<td>{html.escape(x)}</td>' for x in _row(task, method, runs))
        + '</tr>'
        for task, methods in groups.items()
        for method, runs in methods.items()
    ]
    title = html.escape(f'Scores of {", ".join(groups)}')
    return PAGE.format(title=title, figure=svg[svg.index('<svg') :], rows='\n'.join(rows))


def _metrics(methods: dict[str, list[curves.Run]]) -> list[str]:
    """The score first, then the losses of any run."""
    names = {name for runs in methods.values() for run in runs for name in run.curves}
    return [curves.SCORE, *sorted(names - {curves.SCORE})]


def _panel(
    axis: Any, task: str, name: str, methods: dict[str, list[curves.Run]], bins: int
) -> None:
    labels = []
    for method, runs in methods.items():
        band = curves.band([x.curves[name] for x in runs if name in x.curves], bins)
        labels.append(f'{method} ({band.runs} run{"s" * (band.runs != 1)})')
        (line,) = axis.plot(band.steps, band.mean, linewidth=1.6)
        if np.isfinite(band.mean).sum() == 1:  # a line of one point shows nothing
            line.set_marker('o')
        if band.runs > 1:
            low, high = band.mean - band.deviation, band.mean + band.deviation
            axis.fill_between(band.steps, low, high, color=line.get_color(), alpha=0.2, lw=0)
    first = next(iter(methods.values()))[0]
    known = curves.published(first) if name == curves.SCORE else None
    if known:
        labels.append(f'published {known.score:g} (at {known.steps:,}, {known.seeds} seeds)')
        axis.axhline(known.score, color='black', linestyle='--', linewidth=1)
    axis.set(title=task if name == curves.SCORE else f'{task}: {name}', xlabel='env steps')
    axis.set_ylabel('score' if name == curves.SCORE else 'loss')
    axis.set_xlim(left=0)
    axis.grid(alpha=0.25)
    # A label that begins with _ would be left out of the legend.
    legend = axis.legend(axis.get_lines(), 'x' * len(labels), fontsize='small')
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    plottext.plain([axis.title, *legend.get_texts()])


def _row(task: str, method: str, runs: list[curves.Run]) -> list[str]:
    """A row of the page's table."""
    scores = [x.curves[curves.SCORE] for x in runs]
    finals = np.array([curves.final(x) for x in scores if len(x[0])])
    steps = max((int(x[0][-1]) for x in scores if len(x[0])), default=0)
    spread = f' ± {finals.std():.4g}' if len(finals) > 1 else ''
    known = curves.published(runs[0])
    there = f'{known.score:g} ± {known.deviation:g} at {known.steps:,}' if known else ''
    found = f'{finals.mean():.5g}{spread}' if len(finals) else 'none'
    return [task, method, str(len(runs)), f'{steps:,}', found, there]
