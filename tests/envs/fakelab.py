"""A double of the module deepmind_lab, as strict as its documents: no graphics, no levels.

A level shows its name's checksum, the seed and the frame in the pixels, pays the sum of the
first four numbers of an action for each frame, and ends after 30 frames.
"""

import zlib

import numpy as np

FRAMES = 30
KNOWN = {'RGB_INTERLEAVED', 'INSTR'}
TEXT = 'Pick the BLUE hat, then the red car!'
made = []  # all that were built, newest last


class Lab:
    """One level; the types that the real one refuses are refused."""

    def __init__(self, level, observations, config={}, renderer='software', level_cache=None):  # noqa: B006
        if not isinstance(observations, list) or not isinstance(config, dict):
            raise TypeError('observations must be a list and config a dict')
        if not all(isinstance(x, str) for pair in config.items() for x in pair):
            raise TypeError('config must map strings to strings')
        for name in observations:
            if name not in KNOWN:
                raise ValueError(f'Unknown observation {name!r}.')
        if not level.startswith('contributed/dmlab30/') or level.endswith('/nothing'):
            raise RuntimeError('Failed to init environment')
        if renderer not in ('hardware', 'software'):
            raise RuntimeError('Unknown renderer')
        self.level, self.names, self.config = level, observations, config
        self.shape = (int(config.get('height', 240)), int(config.get('width', 320)), 3)
        self.running = self.closed = False
        self.actions, self.seeds = [], []
        made.append(self)

    def reset(self, episode=-1, seed=None):
        assert not self.closed
        if seed is not None and type(seed) is not int:
            raise ValueError("'seed' must be int or None")
        self.seeds.append(seed)
        self.frame, self.running = 0, True
        return True

    def is_running(self):
        return self.running

    def step(self, action, num_steps=1):
        if not self.running:
            raise RuntimeError('Environment in wrong status to advance.')
        if not isinstance(action, np.ndarray) or action.shape != (7,):
            raise ValueError('action must have shape (7)')
        if action.dtype != np.intc:
            raise ValueError('action must have dtype np.intc')
        self.actions.append(action.tolist())
        frames = min(num_steps, FRAMES - self.frame)
        self.frame += frames
        self.running = self.frame < FRAMES
        return float(frames * action[:4].sum())

    def observations(self):
        if not self.running:
            raise RuntimeError('Environment in wrong status for call to observations()')
        image = np.zeros(self.shape, np.uint8)
        name = zlib.crc32(self.level.encode()) % 256
        image[0, 0] = [name, (self.seeds[-1] or 0) % 256, self.frame]
        return {k: TEXT if k == 'INSTR' else image for k in self.names}

    def close(self):
        self.running, self.closed = False, True
