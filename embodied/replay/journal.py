"""Which requests a replay has the steps of, in a file that outlives the process.

A client that gets no answer sends its request again, perhaps to the process that comes after
a kill. What had been inserted by then must not be inserted again, and what had not, must be.

The file is mapped: the kernel keeps every store, whatever becomes of the process. It holds the
numbers of requests by client, and the one request whose steps are about to be counted, with
their places. Steps are written first and count only then, so that whoever opens the file after
a kill finds either no trace of a request or all that is needed to count its steps to the end.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from . import files, mappedfile
from .chunk import Chunk

FILENAME = 'requests'
MAGIC = int.from_bytes(b'EMBREQS1', 'little')
CLIENTS = 1024  # that are remembered; then those that were silent for longest give way
WINDOW = 128  # requests that a client may have under way, see `rpc.client.MOST`
CLIENT = np.dtype([('client', 'V16'), ('used', '<i8'), ('counts', '<i8', WINDOW)])
PLACE = np.dtype([('uuid', 'V16'), ('index', '<i8')])
# The stores into `magic`, `open` and `counts` are atomic, and decide.
HEAD = np.dtype([('magic', '<u8'), ('open', '<i8'), ('client', 'V16'), ('number', '<i8')])
Request = tuple[bytes, int]  # 16 bytes of the client, and its number for the request


class Journal:
    """The requests whose steps are in the replay of a directory. One user at a time.

    A number stands at its place in a window of the last ones, so that requests of one client
    may come in any order; of those that are further back all count as received.
    """

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self._path = directory / FILENAME
        directory.mkdir(parents=True, exist_ok=True)
        fixed = HEAD.itemsize + CLIENTS * CLIENT.itemsize
        if not _is_journal(self._path, fixed):
            self._path.write_bytes(MAGIC.to_bytes(8, 'little') + bytes(fixed - 8))
        self._head = np.memmap(self._path, HEAD, 'r+', shape=(1,))
        self._rows = np.memmap(self._path, CLIENT, 'r+', HEAD.itemsize, (CLIENTS,))
        self._places = self._map_places(WINDOW)
        known = np.flatnonzero(self._rows['used'])
        self._of_client = {self._rows['client'][i].tobytes(): int(i) for i in known}
        self._uses = int(self._rows['used'].max())
        self._recover()

    def has(self, request: Request) -> bool:
        """Whether the steps of a request are in."""
        client, number = request
        row = self._of_client.get(client)
        return row is not None and bool(self._rows['counts'][row, number % WINDOW] > number)

    def note(self, request: Request) -> None:
        """Say that the steps of a request are in."""
        client, number = request
        row = self._of_client.get(client)
        if row is None:
            row = self._of_client[client] = self._claim(client)
        self._uses += 1
        self._rows['used'][row] = self._uses
        self._rows['counts'][row, number % WINDOW] = number + 1

    def commit(self, request: Request, places: Sequence[tuple[Chunk, int]]) -> None:
        """Decide that the steps of a request are in, which are written but do not count yet.

        From here on a kill changes nothing any more. Count them, then call `settle`.
        """
        if len(places) > len(self._places):
            self._places = self._map_places(2 * len(places))
        part = self._places[: len(places)]
        part['uuid'] = np.frombuffer(b''.join(chunk.uuid for chunk, _ in places), 'V16')
        part['index'] = [index for _, index in places]
        client, number = request
        self._head['client'][0] = np.void(client)
        self._head['number'][0] = number
        self._head['open'][0] = len(places)

    def settle(self) -> None:
        """Say that the steps of the request that was committed count."""
        head = self._head[0]
        self.note((head['client'].tobytes(), int(head['number'])))
        self._head['open'][0] = 0

    def _recover(self) -> None:
        """Count the steps of a request that was committed by a process that is gone."""
        count = int(self._head['open'][0])
        if not 0 < count <= len(self._places):
            self._head['open'][0] = 0
            return
        for uuid, index in self._places[:count].tolist():
            for path in self._directory.glob(f'*-{files.to_base62(bytes(uuid))}.chunk'):
                mappedfile.count(path, index)
        self.settle()

    def _claim(self, client: bytes) -> int:
        """Return the row of a client that is new."""
        row = int(self._rows['used'].argmin())
        self._of_client.pop(self._rows['client'][row].tobytes(), None)
        self._rows['counts'][row] = 0  # before it is that of another client
        self._rows['client'][row] = np.void(client)
        return row

    def _map_places(self, count: int) -> np.ndarray:
        """Return the places at the end of the file, `count` of them or as many as there are."""
        start = HEAD.itemsize + CLIENTS * CLIENT.itemsize
        there = (self._path.stat().st_size - start) // PLACE.itemsize
        if there < count:
            with open(self._path, 'r+b') as file:
                file.seek(start + there * PLACE.itemsize)
                file.write(bytes((count - there) * PLACE.itemsize))  # no hole: see `mappedfile`
        return np.memmap(self._path, PLACE, 'r+', start, (max(count, there),))


def recover(directory: pathlib.Path) -> None:
    """Count the steps that a process that is gone had committed in a directory."""
    if (directory / FILENAME).exists():
        Journal(directory)


def _is_journal(path: pathlib.Path, size: int) -> bool:
    try:
        with open(path, 'rb') as file:
            magic = int.from_bytes(file.read(8), 'little')
        return magic == MAGIC and path.stat().st_size >= size
    except OSError:
        return False
