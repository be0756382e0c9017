"""Which runs make up one line of a plot: those of a task and method that learned alike."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dreamerv3 import checks
from dreamerv3 import config as configs
from dreamerv3.curves import Run
from embodied import UserError

Groups = dict[str, dict[str, list[Run]]]  # task -> method -> runs

# Keys that do not change what is learned from so many steps, or that tell runs apart anyway.
INERT = re.compile(
    r'seed|logdir|task|method|script|random_agent|replicas?|report_length|consec_report|'
    r'clock_.*|ipv6|errfile|logger\..*|env\.\w+\.(logs|info)|replay\.(storage|chunksize)|'
    r'run\.(steps|duration|episodes|report_batches|eval_.*|keep|.*_every|.*timeout|bind|'
    r'trust_pickle|.*_addr|overlap|env_restarts|env_python|strict_spaces|actor_.*|agent_process|remote_.*|'
    r'usage\..*|debug)|jax\.(?!compute_dtype).*|agent\.report.*'
)
NAMED = 4  # keys in a warning; a size block alone changes a dozen


def trained(runs: Iterable[Run]) -> list[Run]:
    """The runs without evaluations, which have no learning curve; prints what is left out.

    Raises UserError if there is nothing else.
    """
    kept = []
    for run in runs:
        if run.config.get('script') == 'eval_only':
            print(f'Left out: {run.folder} is an evaluation (script eval_only)', flush=True)
        else:
            kept.append(run)
    if not kept:
        raise UserError('There are evaluations alone, which have no learning curve.')
    return kept


def group(runs: Iterable[Run], by: Sequence[str] = ()) -> Groups:
    """Runs by task and method, each in the order of its name.

    by: keys of the config whose values split methods. Raises UserError for one that no run has.
    """
    runs = list(runs)
    known = {*configs.blocks()['defaults'], *(key for run in runs for key in run.config)}
    for key in by:
        if key not in known:
            raise UserError(f'--by {key} is no key of a config.{checks.nearest(key, known)}')
    groups: Groups = {}
    for run in sorted(runs, key=lambda x: (x.task, x.method, str(x.folder))):
        values = [f'{key}={configs.show(_value(run, key, "not set"))}' for key in by]
        name = ', '.join([run.method, *values])
        groups.setdefault(run.task, {}).setdefault(name, []).append(run)
    return groups


def warn(groups: Groups) -> None:
    """Print a line for each method whose runs did not learn alike."""
    for task, methods in groups.items():
        for method, runs in methods.items():
            if found := differences(runs):
                shown = [
                    f'{key} ({", ".join(map(configs.show, values))})'
                    for key, values in list(found.items())[:NAMED]
                ]
                more = len(found) - len(shown)
                print(
                    f'Warning: the runs of {task}, {method} differ in {", ".join(shown)}'
                    f'{f" and {more} more keys" if more else ""}; --by KEY splits them.',
                    flush=True,
                )


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The keys that change learning in which runs of one task differ, with their values.

    A key that a config does not have, such as one from before it came, has its default.
    """
    found, suite = {}, f'env.{runs[0].task.partition("_")[0]}.'
    for key in sorted({key for run in runs for key in run.config}):
        own = not key.startswith('env.') or key.startswith(suite)
        if INERT.fullmatch(key) or not own:
            continue
        values = [_value(run, key) for run in runs if run.config]
        unique = [x for i, x in enumerate(values) if x is not None and x not in values[:i]]
        if len(unique) > 1:
            found[key] = unique
    return found


def _value(run: Run, key: str, otherwise: Any = None) -> Any:
    return run.config.get(key, configs.blocks()['defaults'].get(key, otherwise))
