"""What the viewer sends of the files of runs: columns of metrics, texts, images and videos.

Scope's own viewer would wait for ever for a pipe that has the name of a metric, takes a file
that is being written for an error of its own, and reads ranges in its own way. The answers are
the same otherwise.
"""

import math
import os
import pathlib
import re

import numpy as np
from starlette.responses import FileResponse, JSONResponse, Response

MEDIA = {
    'txt': 'text/plain',
    'png': 'image/png',
    'jpg': 'image/jpeg',
    'jpeg': 'image/jpeg',
    'mp4': 'video/mp4',
    'webm': 'video/webm',
}
# Records of a column of scalars, and of one of files.
SCALAR = np.dtype([('step', '>i8'), ('value', '>f8')])
ENTRY = np.dtype([('step', '<i8'), ('ident', 'V8')])
RANGE = re.compile(r'bytes=([0-9]{0,999})-([0-9]{0,999})', re.IGNORECASE)


def column(name: str, path: pathlib.Path) -> Response | None:
    """Steps and values of the column of this id, None if there is none.

    The record that a run is about to write does not count.
    """
    kind = name.rpartition('.')[2]
    if kind == 'float':
        rows = _records(path, SCALAR)
    else:
        rows = _records(path / 'index', ENTRY) if kind in MEDIA else None
    if rows is None:
        return None
    steps = rows['step'].tolist()
    if kind == 'float':  # JSON knows no number that is not finite
        values = [x if math.isfinite(x) else None for x in rows['value'].tolist()]
    else:
        files = zip(steps, rows['ident'].tolist(), strict=True)
        values = [f'{name}:{step:020}-{ident.hex()}.{kind}' for step, ident in files]
    run = name.rsplit(':', 2)[0]
    return JSONResponse({'id': name, 'run': run, 'steps': steps, 'values': values})


def file(name: str, path: pathlib.Path) -> Response | None:
    """The file of this id, None if there is none. Ranges are for `ranged` to prepare."""
    kind = name.rpartition('.')[2]
    if kind not in MEDIA or not _plain(path):
        return None
    if kind == 'txt':
        return JSONResponse({'id': name, 'text': path.read_text('utf-8', 'replace')})
    return FileResponse(path, media_type=MEDIA[kind], stat_result=path.stat())


def ranged(scope: dict, size: int) -> dict:
    """An ASGI request for `size` bytes with the one range that it asks for, or none.

    As RFC 9110, section 14.2 has it: only GET has ranges; one that is malformed or has other
    units is ignored; a server may send everything to who asks for several.
    """
    headers = whole(scope)['headers']
    asked = [v for k, v in scope['headers'] if k == b'range']
    found = RANGE.fullmatch(asked[0].decode('latin-1').strip()) if len(asked) == 1 else None
    if found and scope['method'] == 'GET' and (span := _span(*found.groups(), size)):
        headers.append((b'range', span.encode()))
    return {**scope, 'headers': headers}


def whole(scope: dict) -> dict:
    """An ASGI request without a range."""
    return {**scope, 'headers': [(k, v) for k, v in scope['headers'] if k != b'range']}


def _span(first: str, last: str, size: int) -> str | None:
    """The range in full, beyond the end where it cannot be satisfied; None if it is invalid."""
    if not first and not last:
        return None
    if not first:  # the last so many
        return f'bytes={max(0, size - int(last)) if int(last) else size}-'
    if last and int(last) < int(first):
        return None
    return f'bytes={int(first)}-{last and int(last)}'


def _records(path: pathlib.Path, dtype: np.dtype) -> np.ndarray | None:
    """The whole records of a plain file, None if it is no such file."""
    if not _plain(path):
        return None
    data = path.read_bytes()
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def _plain(path: pathlib.Path) -> bool:
    """Whether a file can be read to its end: no folder, pipe, socket or device."""
    return path.is_file() and os.access(path, os.R_OK)
