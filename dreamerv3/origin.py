"""Whose `embodied` is imported: this project's, or another one's of that name.

The package index has projects called embodied and dreamerv3 that are not this one.
"""

import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parents[1]


def check() -> None:
    """Raise ImportError if `embodied` is another project's, and warn if it is another copy."""
    found = _embodied()
    if found is None or found == HERE / 'embodied':
        return
    if not (found / 'core' / 'errors.py').exists():
        raise ImportError(
            f'{found} is another project called embodied; take it away (pip uninstall '
            f'embodied), or put {HERE} before it on PYTHONPATH.'
        )
    print(
        f'Warning: embodied is that of {found.parent}, dreamerv3 that of {HERE}; two copies of '
        'this project may not fit each other.',
        file=sys.stderr,
        flush=True,
    )


def _embodied() -> pathlib.Path | None:
    """The folder of the package that is imported, or would be; None if there is none."""
    module = sys.modules.get('embodied')
    spec = None if module else importlib.util.find_spec('embodied')
    path = module.__file__ if module else spec and spec.origin
    return pathlib.Path(path).resolve().parent if path else None
