"""Ratios of two files with figures, new by old.

    python benchmarks/compare.py OLD NEW

The files hold lines as train.py, policy.py and startup.py print them. Lines with the same
program and flags belong together; of several in one file the median counts. The last columns
are the ratio on a machine of the same speed: a duration times what calibrate measured beside
it, and the name of that measurement.
"""

import argparse
import json
import re
import statistics
from typing import Any

Key = tuple[str, str]
MATMUL = {'float32': 'matmul_f32', 'bfloat16': 'matmul_bf16'}


class Mismatch(Exception):
    """Files that cannot be compared, in a sentence for the user."""


def main() -> None:
    """Print the ratios, or why there are none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('old')
    parser.add_argument('new')
    args = parser.parse_args()
    try:
        print(compare(args.old, args.new))
    except Mismatch as e:
        parser.exit(2, f'Error: {e}\n')


def compare(old: str, new: str) -> str:
    """The table of two files. Raises Mismatch."""
    ours, theirs = read(new), read(old)
    common = [key for key in theirs if key in ours]
    if not common:
        raise Mismatch(
            f'no line of {old} has the flags of one of {new}: {_names(theirs)} against '
            f'{_names(ours)}'
        )
    text = []
    for key in common:
        text += [' '.join(key), *_rows(theirs[key], ours[key], _dtype(key)), '']
    for path, lines in ((old, theirs), (new, ours)):
        if alone := [key for key in lines if key not in common]:
            text.append(f'only in {path}: {_names(alone)}')
    return '\n'.join(text).rstrip()


def read(path: str) -> dict[Key, dict[str, float]]:
    """Figures and calibration of each program and its flags. Raises Mismatch."""
    lines: dict[Key, list[dict[str, float]]] = {}
    try:
        with open(path) as file:
            found = [(i, x) for i, x in enumerate(file, 1) if x.startswith('{')]
    except OSError as e:
        raise Mismatch(f'cannot read {path}: {e.strerror}') from e
    for number, text in found:
        try:
            key, figures = _parse(text)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise Mismatch(
                f'{path}, line {number}, is not from train.py, policy.py or startup.py'
            ) from e
        lines.setdefault(key, []).append(figures)
    if not lines:
        raise Mismatch(f'{path} holds no line of JSON')
    return {key: _median(found) for key, found in lines.items()}


def calibration(name: str, figures: dict[str, float], dtype: str) -> str | None:
    """Which calibration a figure is in proportion to; None if to none.

    What compiled steps take goes with products of their dtype; starting and compiling go with
    Python, and so do calls of the policy of which the host has the larger share. Counts,
    memory and shares are what they are.
    """
    if not re.search(r'_(ms|s)(_|$)', name):
        return None
    if call := re.fullmatch(r'call_(\d+)_ms', name):
        step = figures[f'host_share_{call[1]}'] < 0.5
    else:
        step = bool(re.match(r'(train|report)_ms|compiled_', name))
    return MATMUL[dtype] if step else 'python'


def _parse(text: str) -> tuple[Key, dict[str, float]]:
    content = json.loads(text)
    flags = ' '.join(f'--{k} {v}' for k, v in sorted(content['flags'].items()))
    figures = dict(content['figures'])
    before, after = content['before'], content['after']
    figures |= {f'calibrate/{k}': (before[k] + after[k]) / 2 for k in before}
    return (content['program'], flags), figures


def _median(lines: list[dict[str, float]]) -> dict[str, float]:
    common = [k for k in lines[0] if all(k in x for x in lines)]
    return {k: statistics.median(x[k] for x in lines) for k in common}


def _rows(old: dict[str, float], new: dict[str, float], dtype: str) -> list[str]:
    rows = [f'  {"":<20} {"old":>10} {"new":>10} {"ratio":>7} {"scaled":>7}']
    for name in [k for k in old if k in new]:
        fits = calibration(name, old, dtype)
        ratio = _ratio(new[name], old[name])
        row = f'  {name:<20} {old[name]:>10.6g} {new[name]:>10.6g} {ratio:>7}'
        if fits:
            speed = f'calibrate/{fits}'
            scaled = _ratio(new[name] * new[speed], old[name] * old[speed])
            row += f' {scaled:>7}  {fits}'
        rows.append(row)
    return rows


def _ratio(new: float, old: float) -> str:
    return f'{new / old:.3f}' if old else '-'


def _dtype(key: Key) -> str:
    found = re.search(r'--dtype (\S+)', key[1])
    return found[1] if found else 'float32'


def _names(keys: Any) -> str:
    return '; '.join(' '.join(key) for key in keys)


if __name__ == '__main__':
    main()
