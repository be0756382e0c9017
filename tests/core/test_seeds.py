"""The global generators of `random` and `numpy.random` are seeded for environments."""

import random
import sys
import types

import numpy as np
import pytest

import dreamerv3
import embodied
from embodied.core import seeds
from tests.doubles import CounterEnv


class Drawing(CounterEnv):
    """Shows in its reward what both global generators give, in its constructor too."""

    def __init__(self):
        super().__init__(length=5)
        self.made = self.draw()

    def draw(self) -> float:
        return random.random() + 2 * np.random.random()  # noqa: NPY002

    def step(self, action: dict) -> dict:
        obs = super().step(action)
        return {**obs, 'reward': np.float32(self.made + 10 * self.draw())}


def rewards(folder, seed: int, script: str = 'train', **run) -> dict[int, list[float]]:
    """The rewards of a run by environment, in the order of time."""
    run = {'envs': 2, 'steps': 40, 'usage.psutil': False, 'report_every': 0, **run}
    logger = {'outputs': ['jsonl']}
    flags = {'random_agent': True, 'seed': seed, 'script': script, 'logger': logger}
    flags.update(batch_size=2, batch_length=4, report_length=2)
    dreamerv3.train(Drawing, folder, ['debug'], run=run, **flags)
    replay = embodied.Replay(1, directory=folder / 'replay')
    replay.load()
    assert len(replay) == 40
    chunks = [np.load(x)['reward'] for x in sorted((folder / 'replay').glob('*.npz'))]
    return sorted(x.tolist() for x in chunks)


@pytest.mark.parametrize('debug', [True, False])
def test_one_seed_is_one_run(tmp_path, debug: bool):
    random.seed(1)
    first = rewards(tmp_path / 'a', 3, debug=debug)
    random.seed(2)  # what others drew in the process of the run changes nothing
    np.random.seed(2)  # noqa: NPY002
    assert rewards(tmp_path / 'b', 3, debug=debug) == first
    assert len(first) == 2
    assert first[0] != first[1]
    other = rewards(tmp_path / 'c', 4, debug=debug)
    assert not {*map(tuple, other)} & {*map(tuple, first)}


def test_evaluations_leave_the_draws_of_training_alone(tmp_path):
    plain = rewards(tmp_path / 'a', 3)
    run = {'report_every': -1, 'eval_eps': 2, 'eval_envs': 1}
    assert rewards(tmp_path / 'b', 3, 'train_eval', **run) == plain
    evaluated = [*(tmp_path / 'b' / 'replay_eval').glob('*.npz')]
    assert evaluated


def test_torch_is_seeded_where_it_is_used(monkeypatch):
    drawn = []
    torch = types.SimpleNamespace(
        manual_seed=drawn.append, get_rng_state=lambda: 5, set_rng_state=drawn.append
    )
    monkeypatch.setitem(sys.modules, 'torch', torch)
    env = seeds.SeedGlobals(CounterEnv(), 7)
    for _ in range(3):
        env.step({'action': np.int32(0), 'reset': np.bool_(True)})
    assert len(drawn) == 1
    with seeds.Apart()():
        pass
    assert drawn[1:] == [5, 5]
