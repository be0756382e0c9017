"""Reads what Weights & Biases writes offline, with the package's own messages."""

import json
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

BLOCK = 32768  # bytes; a record is cut into parts that do not cross the border of blocks
WHOLE, LAST = 1, 4  # kinds of parts that end a record


def history(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The logged rows of all runs in LOGDIR/wandb, in the order of writing."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for path in sorted(folder.glob('wandb/offline-run-*/*.wandb')):
        for data in _records(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.WhichOneof('record_type') == 'history':
                items = record.history.item
                rows.append(
                    {'/'.join(x.nested_key) or x.key: json.loads(x.value_json) for x in items}
                )
    return rows


def _records(data: bytes) -> Iterator[bytes]:
    place, parts = 7, b''  # after the header of the file
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, size, kind = struct.unpack('<IHB', data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (WHOLE, LAST):
            yield parts
            parts = b''
