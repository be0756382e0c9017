"""A process that inserts and saves with hardly a pause, to be killed: FOLDER STORAGE FIRST.

Writes a dot for every insert, and beside the folder how many steps of each worker, from FIRST
on, are in (`inserted`), and were in before the last finished save began (`saved`).
"""

import itertools
import os
import pathlib
import sys
import threading
import time

import numpy as np

import embodied

WORKERS = 2
LENGTH = 4
CAPACITY = 2000  # more than the inserts of one process that no save has seen


def make(folder: pathlib.Path, storage: str) -> embodied.Replay:
    options = {'capacity': CAPACITY, 'chunksize': 16, 'storage': storage}
    return embodied.Replay(LENGTH, directory=folder, **options)


def main(folder: str, storage: str, first: str) -> None:
    path = pathlib.Path(folder)
    replay = make(path, storage)
    replay.load()
    notes = {}
    for name in ('inserted', 'saved'):
        notes[name] = os.open(path.with_name(name), os.O_RDWR | os.O_CREAT)
        os.pwrite(notes[name], int(first).to_bytes(8, 'little'), 0)
    number = int(first)

    def save() -> None:
        while True:
            before = number
            replay.save()
            os.pwrite(notes['saved'], before.to_bytes(8, 'little'), 0)
            time.sleep(0.002)  # for the inserts, which else wait for the interpreter's lock

    threading.Thread(target=save, daemon=True).start()
    for number in itertools.count(int(first)):
        step = {
            'step': np.full(WORKERS, number, np.int32),
            'env': np.arange(WORKERS, dtype=np.int32),
            'image': np.full((WORKERS, 20, 20), number % 256, np.uint8),
        }
        replay.add_batch(step, range(WORKERS))
        os.pwrite(notes['inserted'], (number + 1).to_bytes(8, 'little'), 0)
        os.write(1, b'.')


if __name__ == '__main__':
    main(*sys.argv[1:])
