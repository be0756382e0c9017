"""What the factories build from a config, without the run loops and mostly without JAX."""

import functools
import pathlib
import shutil
import sys
import types

import cloudpickle
import elements
import numpy as np
import pytest

import embodied
from dreamerv3 import config as configs
from dreamerv3 import environments, factories
from embodied import envs

RECORDED = pathlib.Path(__file__).parents[1] / 'golden' / 'reference_run' / 'replay'


def load(tmp_path, *names, **overrides):
    overrides = {k.replace('__', '.'): v for k, v in overrides.items()}
    return configs.load(names or ['debug'], {'logdir': str(tmp_path), **overrides})


def fill(replay, steps):
    for index in range(steps):
        replay.add(
            {
                'step': np.int32(index),
                'is_first': np.bool_(index == 0),
                'is_last': np.bool_(False),
            }
        )


def test_run_args_are_flat(tmp_path):
    args = factories.run_args(load(tmp_path, 'debug', 'crafter', seed=3))
    assert args.train_ratio == 512
    assert args.usage.psutil is True
    assert (args.logdir, args.seed, args.batch_size) == (str(tmp_path), 3, 8)
    assert (args.batch_length, args.report_length, args.replay_context) == (10, 5, 1)


def test_envs_differ_by_index_and_seed_and_repeat(tmp_path):
    def frame(seed, index):
        env = factories.make_env(load(tmp_path, seed=seed), index)
        act = {'act_disc': np.int32(0), 'act_cont': np.zeros(6, np.float32)}
        return env.step({**act, 'reset': np.bool_(True)})

    images = [frame(*key)['image'].tobytes() for key in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert len(set(images)) == 4
    assert frame(1, 1)['image'].tobytes() == images[3]


def test_seeds_differ_after_a_resume_and_a_restart(tmp_path):
    config = load(tmp_path)
    keys = [(0, 0), (100, 0), (200, 0), (0, 1), (100, 1), (0, 100)]
    seeds = {environments.env_seed(config, index, *key) for index in (0, 1) for key in keys}
    assert len(seeds) == 12
    assert environments.env_seed(config, 0) == environments.env_seed(config, 0, 0, 0)


def test_evaluations_of_a_trained_agent_share_no_seed_with_any_training(tmp_path):
    config = load(tmp_path, run__envs=1)
    evaluation = config.update(script='eval_only')
    trained = {environments.env_seed(config, index) for index in range(500)}
    played = {environments.env_seed(evaluation, index) for index in range(500)}
    assert len(trained | played) == 1000


def test_env_options_come_from_the_suite(tmp_path):
    config = load(tmp_path, 'crafter', env__crafter__size=[32, 48], env__crafter__logs=True)
    spaces = factories.make_env(config, 0).obs_space
    assert spaces['image'].shape == (32, 48, 3)
    assert 'log/achievement_eat_cow' in spaces


def test_an_action_outside_of_its_space_is_named(tmp_path):
    env = factories.make_env(load(tmp_path), 0)
    act = {
        'act_disc': np.int32(5),
        'act_cont': np.zeros(6, np.float32),
        'reset': np.bool_(False),
    }
    with pytest.raises(embodied.UserError, match=r"'act_disc'.* is 5, expected from 0 to 4"):
        env.step(act)


def test_factories_cross_processes(tmp_path):
    make = functools.partial(factories.make_env, load(tmp_path), 2)
    env = cloudpickle.loads(cloudpickle.dumps(make))()
    assert env.obs_space['vector'].shape == (7,)


@pytest.mark.parametrize(
    ('mode', 'length', 'capacity'), [('train', 31, 10_000), ('eval', 6, 1_000)]
)
def test_replay_items_fit_the_stream(tmp_path, mode, length, capacity):
    replay = factories.make_replay(load(tmp_path, consec_train=3), 'some', mode)
    assert (replay.length, replay.capacity) == (length, capacity)
    fill(replay, 20)
    replay.save()
    assert list(tmp_path.glob('**/*.npz')) == list((tmp_path / 'some').glob('*.npz')) != []


def test_train_stream_gives_consecutive_chunks_of_one_sequence(tmp_path):
    config = load(tmp_path, consec_train=3, replay_context=2, replay__online=False)
    replay = factories.make_replay(config)
    fill(replay, 60)
    stream = factories.make_stream(config, replay, 'train')
    chunks = [next(stream) for _ in range(3)]
    assert all(x['step'].shape == (8, 12) for x in chunks)
    assert [set(x['consec'].flat) for x in chunks] == [{0}, {1}, {2}]
    np.testing.assert_array_equal(chunks[0]['step'] + 10, chunks[1]['step'])
    np.testing.assert_array_equal(chunks[0]['step'] + 20, chunks[2]['step'])


def test_report_stream_cuts_the_train_replay(tmp_path):
    config = load(tmp_path)
    replay = factories.make_replay(config)
    fill(replay, 40)
    batch = next(factories.make_stream(config, replay, 'report'))
    assert batch['step'].shape == (8, 6)


def test_eval_stream_fits_the_eval_replay(tmp_path):
    config = load(tmp_path, consec_report=2)
    replay = factories.make_replay(config, 'eval', 'eval')
    fill(replay, 40)
    stream = factories.make_stream(config, replay, 'eval')
    assert [next(stream)['step'].shape for _ in range(2)] == [(8, 6), (8, 6)]


def test_online_queue_is_for_training_alone(tmp_path):
    """The newest complete sequence comes first where there is a queue."""
    config = load(tmp_path, batch_size=1)
    replay = factories.make_replay(config)
    fill(replay, 22)
    stream = factories.make_stream(config, replay, 'train')
    assert [next(stream)['step'][0, 0] for _ in range(2)] == [0, 11]


def test_random_agent_needs_no_jax(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'dreamerv3.agent', None)
    agent = factories.make_agent(load(tmp_path, random_agent=True))
    assert isinstance(agent, embodied.RandomAgent)
    assert agent.act_space.keys() == {'act_disc', 'act_cont'}
    assert not any(key.startswith('log/') for key in agent.obs_space)


def test_image_sizes_are_checked_before_the_agent_is_imported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'dreamerv3.agent', None)
    config = load(tmp_path, 'debug', 'crafter', env__crafter__size=[60, 60])
    with pytest.raises(embodied.UserError, match=r'--env\.crafter\.size'):
        factories.make_agent(config)


def test_agent_gets_its_section_and_the_run_keys(tmp_path, monkeypatch):
    class Recorder:
        def __init__(self, *args):
            self.args = args

        def describe(self):
            return 'recorded'

    settings = []
    for name, content in (
        ('dreamerv3.agent', {'Agent': Recorder}),
        (
            'embodied.jax.runtime.setup',
            {'setup': settings.append, 'compute_dtype': lambda x: 'float32'},
        ),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    agent = factories.make_agent(load(tmp_path, 'debug', 'crafter', seed=4))
    assert [x.platform for x in settings] == ['cpu']  # before the agent is made
    obs_space, act_space, config = agent.args
    assert obs_space.keys() == {'image', 'reward', 'is_first', 'is_last', 'is_terminal'}
    assert act_space.keys() == {'action'}
    assert config.dyn.rssm.deter == 8
    assert config.jax.platform == 'cpu'
    assert (config.seed, config.logdir, config.replay_priority) == (4, str(tmp_path), False)
    assert (config.batch_size, config.batch_length, config.report_length) == (8, 10, 5)
    assert (config.replica, config.replicas, config.replay_context) == (0, 1, 1)


def test_logger_writes_metrics_and_scores(tmp_path, capsys):
    logger = factories.make_logger(load(tmp_path))
    logger.step.increment(7)
    logger.add({'score': 1.5, 'length': 3}, prefix='episode')
    logger.add({'loss/image': 2.0, 'val': 4.0}, prefix='train')
    logger.close()
    lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
    assert lines == [
        '{"step": 7, "episode/score": 1.5, "episode/length": 3.0, '
        '"train/loss/image": 2.0, "train/val": 4.0}'
    ]
    scores = (tmp_path / 'scores.jsonl').read_text()
    assert scores == '{"step": 7, "episode/score": 1.5}\n'
    assert (tmp_path / 'scope').is_dir()
    shown = capsys.readouterr().out
    assert 'episode/score' in shown
    assert 'train/val' not in shown


def test_logger_without_outputs_but_the_terminal(tmp_path):
    logger = factories.make_logger(load(tmp_path, logger__outputs=['jsonl']))
    assert [x.name for x in logger.outputs] == ['terminal', 'metrics.jsonl', 'scores.jsonl']


def test_x_axis_counts_frames(tmp_path, monkeypatch):
    assert factories.make_logger(load(tmp_path)).multiplier == 1
    monkeypatch.setitem(envs.SUITES, 'dmc', envs.Suite('dmc:Dmc', None))
    config = load(tmp_path, 'dmc_vision', env__dmc__repeat=2)
    assert factories.make_logger(config).multiplier == 2


@pytest.mark.parametrize('storage', ['ram', 'disk'])
@pytest.mark.parametrize(
    ('dtype', 'script', 'stored'),
    [
        ('bfloat16', 'train', np.uint16),
        ('auto', 'train', np.float32),  # on a CPU
        ('auto', 'parallel_replay', np.float32),  # which does not know, as in the files
        ('bfloat16', 'parallel_replay', np.uint16),
    ],
)
def test_replay_of_the_reference_goes_on(tmp_path, storage, dtype, script, stored):
    """Its chunks load without a flag, with latents in the form that the agent adds."""
    shutil.copytree(RECORDED, tmp_path / 'replay')
    flags = {'jax__compute_dtype': dtype, 'replay__storage': storage, 'script': script}
    config = load(tmp_path, 'crafter', 'debug', **flags)
    replay = factories.make_replay(config)
    replay.load()
    assert (replay.length, len(replay)) == (11, 370)
    data = replay.sample(5)
    assert (data['dyn/deter'].dtype, data['dyn/deter'].shape) == (stored, (5, 11, 8))
    assert (data['dyn/stoch'].dtype, data['dyn/stoch'].shape) == (np.uint8, (5, 11, 2))
    step = {key: value[0, 0] for key, value in data.items()}
    for _ in range(11):
        replay.add(step)
    assert len(replay) == 371
    replay.save()
    again = factories.make_replay(config)
    again.load()
    assert len(again) == 371


def test_replay_settings_come_from_the_config(tmp_path):
    fracs = {'replay__fracs__uniform': 0.5, 'replay__fracs__priority': 0.5}
    config = load(tmp_path, **fracs, replay__storage='disk', replay__online=False)
    replay = factories.make_replay(config)
    assert isinstance(replay._selector, embodied.selectors.Mixture)
    for name in ('replay', 'eval'):
        replay = factories.make_replay(config, name, 'train' if name == 'replay' else 'eval')
        fill(replay, 20)
        assert len(list((tmp_path / name).glob('*.chunk'))) == 1
    assert isinstance(replay._selector, embodied.selectors.Uniform)


@pytest.mark.parametrize('random', [True, False])
def test_an_env_without_an_action_is_refused(tmp_path, random):
    class Idle(embodied.wrappers.Wrapper):
        act_space = {'reset': elements.Space(bool)}  # noqa: RUF012

    config = load(tmp_path, random_agent=random)
    with pytest.raises(embodied.UserError, match='--task dummy_disc has no action'):
        factories.make_agent(config, Idle(factories.make_env(config, 0)))


@pytest.mark.parametrize('make', [factories.make_agent, factories.make_logger])
def test_timers_are_turned_off_wherever_they_run(tmp_path, make):
    for enabled in (False, True):
        flags = {'task': 'dummy_disc', 'random_agent': True, 'logdir': str(tmp_path)}
        make(configs.load(['debug'], {**flags, 'logger.timer': enabled}))
        assert elements.timer.global_timer.enabled == enabled


class Built(Exception):
    """An agent would be made now."""


def test_a_hopeless_start_stops_before_the_agent_is_made_unless_it_is_forced(
    tmp_path, monkeypatch, capsys
):
    from dreamerv3 import agent, machine

    def build(*args):
        raise Built

    monkeypatch.setattr(agent, 'Agent', build)
    monkeypatch.setattr(machine, 'free_memory', lambda device: 1e6)
    monkeypatch.setattr(machine, 'matmul_rate', lambda device, dtype: 1e4)
    with pytest.raises(embodied.UserError, match='Add the block debug') as caught:
        factories.make_agent(load(tmp_path))
    assert 's per update' in str(caught.value)
    with pytest.raises(Built):
        factories.make_agent(load(tmp_path, force=True))
    assert capsys.readouterr().out.count('this run: ') == 2
