"""Losses and parameters that are not finite end a run at once and spoil nothing."""

import numpy as np
import pytest

from embodied.checkpoint import checkpoint
from embodied.core.errors import NotFinite
from embodied.run.learner import check_finite
from tests.run.harness import Agent, Run

BAD = [np.float32('nan'), np.float32('inf'), np.float32('-inf'), np.array([1, np.nan])]


@pytest.mark.parametrize('value', BAD, ids=str)
@pytest.mark.parametrize('name', ['loss/rew', 'opt/loss', 'opt/param_rms', 'loss', 'param_rms'])
def test_the_first_bad_metric_is_named(name, value):
    good = {'a': 1.0, 'opt/updates': 3}
    check_finite(good, 'x')
    with pytest.raises(NotFinite, match=f'^x: the metric {name} is .*(nan|inf)'):
        check_finite({**good, name: value, 'loss/z': value}, 'x')


@pytest.mark.parametrize('name', ['ent/action', 'opt/grad_norm', 'glossy', 'text'])
def test_other_metrics_may_be_anything(name):
    check_finite({name: np.float32('nan')}, 'x')
    check_finite({name: 'words'}, 'x')


def test_an_update_that_was_left_out_may_have_any_loss_but_no_bad_parameter():
    metrics = {'loss/rew': np.inf, 'opt/loss': np.nan, 'opt/grad_overflow': np.float32(1)}
    check_finite(metrics, 'x')
    with pytest.raises(NotFinite, match='opt/loss'):
        check_finite({'opt/loss': np.nan, 'opt/grad_overflow': np.float32(0)}, 'x')
    with pytest.raises(NotFinite, match='opt/param_rms'):
        check_finite({**metrics, 'opt/param_rms': np.nan}, 'x')


class Diverging(Agent):
    def train(self, carry, data):
        carry, out, metrics = super().train(carry, data)
        if self.updates == 30:
            metrics = {**metrics, 'loss/double': np.float32('nan')}
        return carry, out, metrics


def test_the_run_ends_and_keeps_the_last_good_checkpoint(tmp_path):
    run = Run(tmp_path, make_agent=Diverging, save_every=-1.0)
    expected = r'^Update 30 of this run, at step 42: the metric loss/double is nan'
    with pytest.raises(NotFinite, match=expected):
        run.train()
    assert run.agent.trained_at[-1] == 42
    saved = checkpoint.read(tmp_path)
    assert (saved['step'], saved['agent']['updates']) == (40, 28)
    # What the bad update gave for the replay is not in there.
    assert run.replay.sample(200, 'report')['latent'].max() == 29
    assert [env.closed for env in run.envs] == [True]
