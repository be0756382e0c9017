"""The checkpoints of a run: complete or absent, the last one always there.

    DIRECTORY/latest                    name of the newest checkpoint
    DIRECTORY/20261129T142956F764654/   one checkpoint (see snapshot.py), named by its time

A checkpoint is written under a temporary name, synced, read back and then renamed. Old ones
go only after that. Whatever else lies in the directory is neither counted nor touched.
Loading runs no code from the files: there are only arrays and JSON in them.
"""

import itertools
import os
import pathlib
import re
import shutil
from collections.abc import Iterable
from typing import Any

from ..core import stamps
from ..core.errors import UserError, reason
from . import reference_checkpoint, snapshot

TEMPORARY = re.compile(r'\.\d{8}T\d{6}F\d{6}\.tmp')


class Checkpoint:
    """The checkpoints in one directory.

    `parts` maps names to objects with `save() -> data` and `load(data)`; data are nested
    dicts, lists and tuples of arrays, numbers, strings, bytes and None. `keep`: how many
    checkpoints remain after a save, beside older ones that were saved as permanent. Raises
    UserError where no folder can be: hours later the first save would find that out.
    """

    def __init__(self, directory: str | pathlib.Path, keep: int = 1):
        if keep < 1:
            raise UserError(f'Cannot keep {keep} checkpoints; expected at least 1 (run.keep).')
        self.directory = pathlib.Path(directory).expanduser().absolute()
        self.keep = keep
        _check_place(self.directory)
        self.parts: dict[str, Any] = {}

    def exists(self) -> bool:
        """Return whether there is something that `load` would load or complain about."""
        return bool(_folders(self.directory)) or _stray(self.directory) is not None

    def save(self, permanent: bool = False) -> pathlib.Path:
        """Write all parts as a new checkpoint and return its folder.

        permanent: no later save removes it. Raises OSError when the disk does not take it; the
        previous checkpoint then stays and nothing of the new one is left.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(self.directory)
        stamp = _new_stamp(self.directory)
        temporary = self.directory / f'.{stamp}.tmp'
        try:
            parts = {name: part.save() for name, part in self.parts.items()}
            snapshot.write(temporary, parts, permanent)
            snapshot.verify(temporary)
            folder = temporary.rename(self.directory / stamp)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        snapshot.sync_folder(self.directory)
        _point(self.directory, stamp)
        for old in _folders(self.directory)[self.keep :]:
            if not snapshot.is_permanent(old):
                _remove(old)
        return folder

    def load(
        self,
        path: str | pathlib.Path | None = None,
        names: Iterable[str] | None = None,
        optional: Iterable[str] = (),
    ) -> pathlib.Path:
        """Load the parts, or those in `names`, and return the folder they came from.

        path: where `find` looks; by default the own directory. optional: parts that stay as
        they are if the checkpoint does not hold them. A damaged newest checkpoint falls back
        to the previous complete one with a warning. Raises UserError if none serves; nothing
        has been loaded then.
        """
        names = list(self.parts) if names is None else list(names)
        folder, data = _read_first(find(path or self.directory), names, optional)
        for name in names:
            if name in data:
                self.parts[name].load(data[name])
        return folder


def read(path: str | pathlib.Path, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return part name -> data (of the parts in `names`) from where `find` looks.

    A damaged newest checkpoint falls back to the previous complete one with a warning.
    Raises UserError if there is no checkpoint, or none that holds the names.
    """
    return _read_first(find(path), names)[1]


def find(path: str | pathlib.Path) -> list[pathlib.Path]:
    """Return the checkpoint folders that `path` stands for, the one to use first.

    path: a run folder, its `ckpt` folder (or `ckpt/agent`, for runs in several processes),
    the file `latest` in that, or a checkpoint itself. Raises UserError if there is none.
    """
    if not str(path):
        raise UserError('No checkpoint given; expected a run folder (run.from_checkpoint).')
    path = pathlib.Path(path).expanduser()
    path = path.parent if path.name == 'latest' and path.is_file() else path
    if snapshot.manifest(path):
        return [path]
    places = (path, path / 'ckpt', path / 'ckpt' / 'agent', path / 'agent')
    for place in places:
        if folders := _order_of_use(place):
            return folders
    if folder := reference_checkpoint.find(path):
        raise UserError(
            f'{folder} holds pickled files of the reference implementation; load its agent '
            f'with --run.from_checkpoint {folder} --run.trust_pickle True and a new --logdir.'
        )
    if strays := [x for x in map(_stray, places) if x]:
        raise UserError(
            f'{strays[0]} is not a complete checkpoint of this package: '
            f'{snapshot.fault(strays[0])}. Choose another folder, or move '
            f'{strays[0].parent} away to start anew.'
        )
    raise UserError(
        f'No checkpoint in {path}; expected a run folder, its ckpt folder or a checkpoint '
        '(run.from_checkpoint).'
    )


def _read_first(
    folders: list[pathlib.Path],
    names: Iterable[str] | None,
    optional: Iterable[str] = (),
) -> tuple[pathlib.Path, dict[str, Any]]:
    for folder, previous in itertools.pairwise(folders):
        try:
            return folder, snapshot.read(folder, names, optional)
        except snapshot.Damaged as error:
            print(f'Warning: {error} Trying the previous one, {previous.name}.', flush=True)
    return folders[-1], snapshot.read(folders[-1], names, optional)


def _check_place(directory: pathlib.Path) -> None:
    """Raise UserError if a directory cannot be made or written to."""
    there = next(x for x in (directory, *directory.absolute().parents) if os.path.lexists(x))
    if not there.is_dir():
        raise UserError(
            f'{there} is no folder, but checkpoints go into {directory}; move it away, or take '
            'another --logdir.'
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f'Cannot write checkpoints into {there}; take another --logdir.')
    for name in ('latest', '.latest.tmp'):
        if (directory / name).is_dir():
            raise UserError(f'{directory / name} is a folder; move it away.')


def _folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the checkpoints of a directory, newest first."""
    if not directory.is_dir():
        return []
    own = [x for x in directory.iterdir() if stamps.parse(x.name) and snapshot.manifest(x)]
    return sorted(own, key=lambda x: x.name, reverse=True)


def _order_of_use(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the checkpoint that `latest` names, then the others, newest first."""
    folders = _folders(directory)
    latest = _latest(directory)
    if folders and latest not in [x.name for x in folders]:
        stray = _stray(directory)
        why = f', {snapshot.fault(stray)}' if stray else ''
        print(
            f'Warning: {directory / "latest"} names no complete checkpoint: {latest!r}{why}. '
            f'Taking {folders[0].name}.',
            flush=True,
        )
    return sorted(folders, key=lambda x: x.name != latest)


def _latest(directory: pathlib.Path) -> str:
    try:
        return (directory / 'latest').read_text('utf8').strip()
    except (OSError, ValueError):
        return ''


def _stray(directory: pathlib.Path) -> pathlib.Path | None:
    """Return the folder that `latest` names if it is not a complete checkpoint of ours.

    Starting anew beside it would be a surprise: it may be what the user wants to go on from.
    """
    name = _latest(directory)
    folder = directory / name
    known = stamps.parse(name) and folder.is_dir() and not snapshot.manifest(folder)
    return folder if known else None


def _new_stamp(directory: pathlib.Path) -> str:
    """Return a name that sorts after all others, even if the clock was set back."""
    folders = _folders(directory)
    stamp = stamps.after(folders[0].name if folders else '')
    while (directory / stamp).exists():
        stamp = stamps.after(stamp)
    return stamp


def _point(directory: pathlib.Path, stamp: str) -> None:
    """Make `latest` name a checkpoint; at no moment is it empty."""
    temporary = directory / '.latest.tmp'
    snapshot.write_file(temporary, stamp.encode())
    os.replace(temporary, directory / 'latest')
    snapshot.sync_folder(directory)


def _remove(folder: pathlib.Path) -> None:
    """Remove an old checkpoint; renamed first, so that a kill leaves no half of one."""
    try:
        shutil.rmtree(folder.rename(folder.with_name(f'.{folder.name}.tmp')))
    except OSError as error:
        print(
            f'Warning: cannot remove the old checkpoint {folder}: {reason(error)}', flush=True
        )


def _remove_leftovers(directory: pathlib.Path) -> None:
    for path in directory.iterdir():
        if TEMPORARY.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
