"""One checkpoint folder: written with a manifest, and read only if that holds.

    NAME.json, NAME.npz    one part: its nested data, and the arrays in it
    done                   manifest: format, size of every file, CRC of the JSON files, and
                           whether later saves must leave it

Arrays carry a CRC of their own inside of the `.npz`. Other files in the folder are ignored.
"""

import contextlib
import json
import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

from ..core import serial
from ..core.errors import UserError, reason

FORMAT = 1
PART = r'\w[\w.-]*'  # the name of a part
FILE = rf'{PART}\.(json|npz)'


class Damaged(UserError):
    """A checkpoint that is cut or altered."""


def write(folder: pathlib.Path, parts: dict[str, Any], permanent: bool = False) -> None:
    """Create the folder, write part name -> data into it and sync it to the disk.

    Raises TypeError for data that cannot be stored, OSError if the disk does not take it.
    """
    folder.mkdir()
    checks = {}
    for name, data in parts.items():
        if not re.fullmatch(PART, name):
            raise ValueError(f'{name!r} cannot name a part of a checkpoint.')
        tree, arrays = serial.pack(data)
        text = json.dumps(tree, allow_nan=False, indent=1).encode()
        checks[f'{name}.json'] = zlib.crc32(text)
        write_file(folder / f'{name}.json', text)
        serial.write_npz(folder / f'{name}.npz', arrays, finish=_sync)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    content = {'format': FORMAT, 'files': sizes, 'crc32': checks, 'permanent': permanent}
    write_file(folder / 'done', json.dumps(content, indent=1).encode())
    sync_folder(folder)


def read(
    folder: pathlib.Path, names: Iterable[str] | None = None, optional: Iterable[str] = ()
) -> dict[str, Any]:
    """Return part name -> data, of all parts or of those in `names`.

    Raises Damaged if a file is cut or altered, UserError if a part is not there and not
    optional.
    """
    content = _checked_manifest(folder)
    there = [name[: -len('.json')] for name in content['crc32']]
    names = there if names is None else list(names)
    if missing := sorted({*names} - {*there, *optional}):
        raise UserError(f'The checkpoint {folder} has {there} but not {missing}.')
    with _damage(folder):
        return {name: _read_part(folder, name, content) for name in names if name in there}


def is_permanent(folder: pathlib.Path) -> bool:
    """Whether a checkpoint was saved to stay."""
    content = manifest(folder)
    return content is not None and bool(content.get('permanent'))


def verify(folder: pathlib.Path) -> None:
    """Read everything back without keeping it. Raises Damaged."""
    content = _checked_manifest(folder)
    with _damage(folder):
        for name in content['crc32']:
            _read_json(folder, name, content)
        for path in sorted(folder.glob('*.npz')):
            with zipfile.ZipFile(path) as archive:
                if bad := archive.testzip():
                    raise ValueError(f'{bad} in {path.name} was altered')


def manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of a folder; None if it is no checkpoint of this package."""
    content = _manifest(folder)
    return None if isinstance(content, str) else content


def fault(folder: pathlib.Path) -> str:
    """Say why a folder is no checkpoint of this package; nothing if it is one."""
    content = _manifest(folder)
    return content if isinstance(content, str) else ''


def _manifest(folder: pathlib.Path) -> dict[str, Any] | str:
    """The content of the file `done`, or what is wrong with it."""
    path = folder / 'done'
    if not path.is_file():
        return 'it has no file `done`'
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        return f'its file `done` cannot be read: {reason(error)}'
    except (ValueError, RecursionError):
        return 'its file `done` is cut or altered: it is not JSON'
    if wrong := _wrong(content):
        return f'its file `done` is cut or altered: {wrong}'
    return content


def _wrong(content: Any) -> str:
    """Say what a manifest should hold and does not; those of newer formats are not judged."""
    if not isinstance(content, dict):
        return f'it holds a {type(content).__name__}, not a dict'
    form = content.get('format')
    if type(form) is not int or form < 1:
        return f'`format` is {form!r:.40}, not a number from 1'
    if form > FORMAT:
        return ''
    for key in ('files', 'crc32'):
        table = content.get(key)
        if not isinstance(table, dict):
            return f'`{key}` is {table!r:.40}, not a dict'
        for name, number in table.items():
            if not re.fullmatch(FILE, name) or type(number) is not int or number < 0:
                return f'`{key}` has {name!r:.40}: {number!r:.40}, not a file with a number'
    lost = [x for x in content['crc32'] if not x.endswith('.json') or x not in content['files']]
    if lost:
        return f'`crc32` names {lost[0]!r:.40}, which is none of its JSON files'
    if not isinstance(content.get('permanent', False), bool):
        return f'`permanent` is {content["permanent"]!r:.40}, not true or false'
    return ''


def write_file(path: pathlib.Path, content: bytes) -> None:
    """Write a small file and sync it to the disk."""
    with open(path, 'wb') as file:
        file.write(content)
        _sync(file)


def sync_folder(path: pathlib.Path) -> None:
    """Make renames and new names in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checked_manifest(folder: pathlib.Path) -> dict[str, Any]:
    content = manifest(folder)
    if content is None:
        raise Damaged(f'{folder} is not a checkpoint: {fault(folder)}.')
    if content['format'] > FORMAT:
        raise UserError(f'The checkpoint {folder} comes from a newer version of this package.')
    for name, size in content['files'].items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 'no'
        if found != size:
            raise Damaged(
                f'The checkpoint {folder} is damaged: {name} has {found} bytes, not {size}.'
            )
    return content


def _read_part(folder: pathlib.Path, name: str, content: dict[str, Any]) -> Any:
    tree = _read_json(folder, f'{name}.json', content)
    return serial.unpack(tree, serial.read_npz(folder / f'{name}.npz'))


def _read_json(folder: pathlib.Path, name: str, content: dict[str, Any]) -> Any:
    text = (folder / name).read_bytes()
    if zlib.crc32(text) != content['crc32'][name]:
        raise ValueError(f'{name} was altered')
    return json.loads(text)


@contextlib.contextmanager
def _damage(folder: pathlib.Path):
    """Turn whatever a damaged file leads to into one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise Damaged(f'The checkpoint {folder} is damaged: {reason(error)}.') from error


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
