"""Evaluations write their episodes as videos, training does not."""

import av
import elements
import numpy as np
import pytest

from embodied import logging
from tests.doubles import CounterEnv
from tests.run.harness import Agent, Run


class Filmed(Run):
    """A run whose logger also films."""

    def make_logger(self):
        logger = super().make_logger()
        logger.outputs.append(logging.Videos(self.logdir, 10))
        return logger


class Logged(CounterEnv):
    """Shows its image under log/ alone."""

    @property
    def obs_space(self):
        return {**super().obs_space, 'log/image': elements.Space(np.uint8, (8, 8, 3))}

    def step(self, action):
        obs = super().step(action)
        return {**obs, 'log/image': np.full((8, 8, 3), 20 * self.step_index, np.uint8)}


def frames(path):
    with av.open(path) as container:
        return [x.to_ndarray(format='rgb24') for x in container.decode(video=0)]


@pytest.fixture
def trained(tmp_path):
    run = Filmed(tmp_path / 'trained', lambda index: CounterEnv(index, image=True))
    run.train()
    assert not (tmp_path / 'trained' / 'videos').exists()
    return tmp_path / 'trained'


def make_env(index):
    return CounterEnv(index, length=5 + index, image=True)


def test_eval_only_films_all_environments(tmp_path, trained):
    args = {'from_checkpoint': str(trained), 'steps': 10**9, 'envs': 2, 'episodes': 4}
    run = Filmed(tmp_path / 'eval', make_env, Agent, **args)
    run.evaluate()
    found = sorted((tmp_path / 'eval' / 'videos').iterdir())
    assert [x.name[12:] for x in found] == ['-env0-image.mp4', '-env1-image.mp4'] * 2
    assert [len(frames(x)) for x in found] == [5, 6, 5, 6]


def test_images_under_log_are_filmed(tmp_path):
    def make_env(index):
        return Logged(index, length=4)

    Run(tmp_path / 'trained', make_env).train()
    args = {'from_checkpoint': str(tmp_path / 'trained'), 'steps': 10**9, 'episodes': 1}
    Filmed(tmp_path / 'eval', make_env, Agent, **args).evaluate()
    (path,) = (tmp_path / 'eval' / 'videos').iterdir()
    assert path.name.endswith('-env0-log-image.mp4')
    assert [round(x.mean() / 20) for x in frames(path)] == [0, 1, 2, 3]


def test_train_eval_films_evaluations_alone(tmp_path):
    run = Filmed(tmp_path, make_env, report_every=-1.0, eval_eps=2, steps=40)
    run.train_eval()
    names = sorted(x.name for x in (tmp_path / 'videos').iterdir())
    steps = {name[:12] for name in names}
    assert len(names) == 2 * len(steps)
    assert all(name[12:] in ('-env0-image.mp4', '-env0-image-2.mp4') for name in names)
