"""Library use: the examples, a loaded agent that acts, training on one's own environment."""

import contextlib
import functools
import io
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import elements
import gymnasium
import numpy as np
import pytest

import dreamerv3
import embodied
from dreamerv3 import config as configs
from dreamerv3 import factories, inference
from dreamerv3 import main as cli
from embodied import UserError

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / 'examples'
DIGITS = np.arange(24) % 4
STEPS = 130  # 80 until training starts, and then some updates


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """`load` keeps its steps in the tests' folder, not at home."""
    folder = os.environ['JAX_COMPILATION_CACHE_DIR']
    monkeypatch.setattr(inference, 'default_cache', lambda: folder)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """Folder and terminal of a run by examples/train_gymnasium.py, with the block debug."""
    folder = tmp_path_factory.mktemp('own') / 'run'
    cache = {'compilation_cache': os.environ['JAX_COMPILATION_CACHE_DIR']}
    flags = {'jax': cache, 'run.report_every': 0}
    terminal = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(terminal):
        patch.setenv('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')  # as the run itself would
        patch.setattr(dreamerv3, 'train', functools.partial(dreamerv3.train, **flags))
        patch.setattr(sys, 'argv', ['train_gymnasium.py', str(folder), str(STEPS), 'debug'])
        runpy.run_path(str(EXAMPLES / 'train_gymnasium.py'), run_name='__main__')
    return folder, terminal.getvalue()


@pytest.fixture(scope='module')
def trained(run):
    return run[0]


@pytest.fixture(scope='module')
def echo():
    """The environment of the example, also as the id Echo-v0."""
    cls = runpy.run_path(str(EXAMPLES / 'train_gymnasium.py'))['Echo']
    gymnasium.register('Echo-v0', cls)
    yield cls
    del gymnasium.registry['Echo-v0']


def the_checkpoint(folder):
    (path,) = (folder / 'ckpt').glob('*/done')
    return path.parent


def test_the_example_of_an_embodied_env(tmp_path, monkeypatch):
    flags = {'random_agent': True, 'logger.outputs': ['jsonl']}
    monkeypatch.setattr(dreamerv3, 'train', functools.partial(dreamerv3.train, **flags))
    monkeypatch.setattr(sys, 'argv', ['', str(tmp_path), '2000', 'debug'])
    runpy.run_path(str(EXAMPLES / 'train_embodied.py'), run_name='__main__')
    lines = (tmp_path / 'scores.jsonl').read_text().splitlines()
    scores = [json.loads(line)['episode/score'] for line in lines]
    assert len(scores) > 50
    assert set(scores) == {0, 1}


def test_importing_loads_neither_jax_nor_gymnasium():
    code = 'import dreamerv3, sys; dreamerv3.load, dreamerv3.train; print(*sys.modules)'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert not {'jax', 'equinox', 'gymnasium', 'crafter'} & set(done.stdout.split())
    assert 'dreamerv3.inference' in done.stdout
    assert set(dreamerv3.__all__) <= set(dir(dreamerv3))
    with pytest.raises(AttributeError, match='nothing'):
        _ = dreamerv3.nothing


def test_the_training_script_is_short_and_learns(trained):
    assert len((EXAMPLES / 'train_gymnasium.py').read_text().splitlines()) <= 25
    lines = [json.loads(x) for x in (trained / 'metrics.jsonl').read_text().splitlines()]
    steps = [x['step'] for x in lines]
    assert steps == sorted(set(steps))
    assert lines[-1]['train/opt/updates'] > 0
    assert elements.Config.load(trained / 'config.yaml').task == 'gym_Echo'


def test_the_start_says_what_the_model_needs_and_which_size_fits(run):
    lines = run[1].splitlines()
    first, second = (i for i, x in enumerate(lines) if x.startswith('estimate') or ' fits' in x)
    assert second == first + 1 < next(i for i, x in enumerate(lines) if 'parameters:' in x)
    assert re.search(r'GB of memory and \S+ s per update; \S+ GB are free', lines[first])
    assert re.search(r'size block .*fits.*: --configs size\d+m|--batch_size', lines[second])


def test_the_acting_script(trained, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['act.py', str(trained)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / 'act.py'), run_name='__main__')
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith('Episode')]
    assert [x.split(':')[0] for x in lines] == ['Episode 0', 'Episode 1', 'Episode 2']
    assert all(0 <= float(x.split()[-1]) <= 20 for x in lines)


@pytest.fixture(scope='module')
def acts(trained):
    """What the agent of the run does in a row of observations."""
    agent = dreamerv3.load(trained)
    return [int(agent.act({'vector': x})['action']) for x in DIGITS]


def test_no_folder_that_a_checkpoint_names_keeps_steps(trained, tmp_path):
    data = embodied.checkpoint.read(trained, ['agent'])['agent']
    data['config']['jax.compilation_cache'] = str(tmp_path / 'foreign')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embodied.checkpoint, 'read', lambda *_: {'agent': data})
        dreamerv3.load('any')
    assert not (tmp_path / 'foreign').exists()


def test_a_checkpoint_from_before_a_key_came_acts_alike(trained, acts):
    data = embodied.checkpoint.read(trained, ['agent'])['agent']
    for key in ('jax.remat', 'agent.opt.wd', 'opt.wd'):
        data['config'].pop(key, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embodied.checkpoint, 'read', lambda *_: {'agent': data})
        agent = dreamerv3.load('any')
    assert [int(agent.act({'vector': x})['action']) for x in DIGITS] == acts


def test_a_ckpt_folder_copied_alone_acts_alike(trained, acts, tmp_path):
    agent = dreamerv3.load(shutil.copytree(trained / 'ckpt', tmp_path / 'x' / 'copy'))
    assert [int(agent.act(x)['action']) for x in DIGITS] == acts


def test_a_checkpoint_copied_alone_acts_alike_also_as_a_batch_of_one(trained, acts, tmp_path):
    agent = dreamerv3.load(shutil.copytree(the_checkpoint(trained), tmp_path / 'copy'))
    assert [agent.act({'vector': x[None]})['action'].tolist() for x in DIGITS] == [
        [x] for x in acts
    ]


def test_another_seed_acts_differently(trained, acts):
    agent = dreamerv3.load(trained, seed=3)
    assert [int(agent.act({'vector': x})['action']) for x in DIGITS] != acts


def test_scores_equal_those_of_eval_only(trained, echo, tmp_path, monkeypatch):
    monkeypatch.setenv('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    copy = shutil.copytree(the_checkpoint(trained), tmp_path / 'copy')
    flags = f'--config {trained}/config.yaml --script eval_only --task gym_Echo-v0 --seed 7'
    flags += f' --run.from_checkpoint {copy} --run.envs 1 --run.episodes 3 --run.steps 1000'
    cli.main([*flags.split(), '--logger.outputs', 'jsonl', '--logdir', f'{tmp_path}/eval'])
    lines = (tmp_path / 'eval' / 'scores.jsonl').read_text().splitlines()

    agent = dreamerv3.load(copy, seed=7)
    played = {'task': 'gym_Echo-v0', 'seed': 7, 'script': 'eval_only'}
    env = factories.make_env(configs.load(['debug'], played), 0)
    action, over, scores = {'action': np.int32(0)}, True, [0.0]
    while len(scores) <= 3:
        obs = env.step({**action, 'reset': np.bool_(over)})
        action, over = agent.act(obs), obs['is_last']
        scores[-1] += float(obs['reward'])
        scores += [0.0] * bool(over)
    assert [json.loads(x)['episode/score'] for x in lines] == scores[:3]


class Recorder:
    """An agent that notes its observations and counts the steps of its carry."""

    obs_space = {  # noqa: RUF012
        'image': elements.Space(np.uint8, (2, 2, 3)),
        'speed': elements.Space(np.float32, (2,), -1, 1),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
    }
    act_space = {'move': elements.Space(np.float32, (3,))}  # noqa: RUF012

    def __init__(self):
        self.seen = []
        self.carries = []

    def init_policy(self, batch):
        self.carries.append(batch)
        return 0

    def policy(self, carry, obs, mode):
        assert mode == 'eval'
        assert obs.keys() == self.obs_space.keys()
        for key, space in self.obs_space.items():
            assert obs[key].dtype == space.dtype
            assert obs[key].shape[1:] == space.shape
        self.seen.append(obs)
        return carry + 1, {'move': np.ones((len(obs['image']), 3), np.float32)}, {}


def frame(*batch, **values):
    return {'image': np.zeros((*batch, 2, 2, 3)), 'speed': np.zeros((*batch, 2)), **values}


def first(agent):
    return [obs['is_first'].tolist() for obs in agent.seen]


def test_episodes_of_one_environment_start_where_they_should():
    agent = Recorder()
    actor = inference.Actor(agent)
    assert actor.act(frame())['move'].shape == (3,)
    actor.act(frame(reward=1, is_first=False))
    actor.act(frame(is_last=True))
    actor.act(frame(is_first=False))  # after an end all the same
    actor.act(frame(is_first=True))
    actor.act(frame())
    actor.reset()
    actor.act(frame())
    assert first(agent) == [[True], [False], [False], [True], [True], [False], [True]]
    assert agent.carries == [1, 1]
    assert agent.seen[1]['reward'].tolist() == [1]


def test_batches_and_a_changed_number_of_environments():
    agent = Recorder()
    actor = inference.Actor(agent)
    assert actor.act(frame(2))['move'].shape == (2, 3)
    actor.act(frame(2, is_last=np.array([False, True]), reward=[1, 2]))
    actor.act(frame(2))
    actor.act(frame(3))
    assert first(agent) == [[True] * 2, [False] * 2, [False, True], [True] * 3]
    assert agent.carries == [2, 3]
    assert agent.seen[1]['reward'].tolist() == [1, 2]


def test_actions_lie_in_the_action_space_single_and_in_a_batch():
    class Wide(Recorder):
        """Draws far beyond the bounds, some of which are infinite."""

        act_space = {  # noqa: RUF012
            'lever': elements.Space(np.float32, (2,), -1, 1),
            'push': elements.Space(np.float32, (2,), [-np.inf, 0.0], [0.5, np.inf]),
            'turn': elements.Space(np.int32, (), 0, 5),
        }

        def policy(self, carry, obs, mode):
            draws = np.float32([[-3, 0.5], [7, -8]])[: len(obs['image'])]
            return carry, {'lever': draws, 'push': draws, 'turn': np.full(len(draws), 4)}, {}

    actor = inference.Actor(Wide())
    acts = actor.act(frame(2))
    assert acts['lever'].tolist() == [[-1, 0.5], [1, -1]]
    assert acts['push'].tolist() == [[-3, 0.5], [0.5, 0]]
    assert (acts['turn'].tolist(), acts['lever'].dtype) == ([4, 4], np.float32)
    assert actor.act(frame())['lever'].tolist() == [-1, 0.5]


@pytest.mark.parametrize(
    ('obs', 'words'),
    [
        ({'imag': 0, 'speed': 0}, ("'image'", 'imag')),
        ({'image': np.zeros((2, 2, 3))}, ("'speed'",)),
        (np.zeros(3), ("'image'", "'speed'")),
        (frame(speed=np.array([0, np.nan])), ("'speed'", 'nan')),
        (frame(speed=np.zeros(3)), ("'speed'", '(3,)')),
        (frame(image=np.full((2, 2, 3), 256)), ("'image'", 'int64', '256')),
        (frame(image=np.full((2, 2, 3), 0.5)), ("'image'", 'float64')),
        (frame(2, speed=np.zeros((3, 2))), ("'speed'", '3', '2')),
        (frame(speed='fast'), ("'speed'",)),
    ],
)
def test_wrong_observations_are_named(obs, words):
    with pytest.raises(UserError) as caught:
        inference.Actor(Recorder()).act(obs)
    assert all(word in str(caught.value) for word in words), caught.value


def test_numbers_beyond_their_bounds_are_acted_on_and_said_once(capsys):
    actor = inference.Actor(Recorder())
    for _ in range(2):
        assert actor.act(frame(speed=np.array([0, 2.0])))['move'].shape == (3,)
    out = capsys.readouterr().out
    assert out.count("Warning: Observation 'speed'") == 1
    assert 'entry 1 is 2.0, expected from -1.0 to 1.0' in out


def test_spaces_that_differ_are_named_by_what_the_model_sees():
    space = elements.Space
    obs = {'image': space(np.uint8, (8, 8, 3)), 'speed': space(np.float32, 2, -1, 1)}
    act = {'move': space(np.int32, (), 0, 3), 'reset': space(bool)}
    data = inference.describe(obs, act, configs.load())
    assert inference.differences(data, obs, act) == []
    near = {**obs, 'speed': space(np.float64, 2, -5, 5)}
    assert inference.differences(data, near, act) == []
    other = {'image': space(np.uint8, (9, 8, 3)), 'pose': space(np.float32, 4)}
    assert inference.differences(data, other, {**act, 'move': space(np.int32, (), 0, 5)}) == [
        "'image' images (8, 8, 3) there, images (9, 8, 3) here",
        "'move' 3 classes there, 5 classes here",
        "'pose' missing there, numbers (4,) here",
        "'speed' numbers (2,) there, missing here",
    ]
    assert inference.differences({'params': {}}, obs, act) == []


def test_a_wrong_path_is_an_error(tmp_path):
    with pytest.raises(UserError, match='No checkpoint in'):
        dreamerv3.load(tmp_path / 'nowhere')


def random_run(make_env, folder, **flags):
    """A run of the random agent, which needs no JAX."""
    flags = {'run': {'steps': 60}, 'logger': {'outputs': ['jsonl']}, **flags}
    return dreamerv3.train(make_env, folder, ['debug'], random_agent=True, **flags)


def test_a_random_agent_is_no_policy(echo, tmp_path):
    folder = random_run(lambda: gymnasium.make('Echo-v0'), tmp_path)
    assert elements.Config.load(folder / 'config.yaml').task == 'gym_Echo-v0'
    with pytest.raises(UserError, match='acts at random'):
        dreamerv3.load(folder)


def test_one_environment_object_stays_open_and_with_us(echo, tmp_path):
    env, closed = echo(), []
    env.close = lambda: closed.append(True)
    random_run(env, tmp_path)
    assert (tmp_path / 'scores.jsonl').read_text()
    assert closed == []
    with pytest.raises(UserError, match=r'run\.envs'):
        random_run(env, tmp_path, run={'envs': 2})


def test_an_env_of_our_contract(tmp_path):
    folder = random_run(lambda: embodied.envs.make('dummy_disc'), tmp_path)
    assert elements.Config.load(folder / 'config.yaml').task == 'gym_Dummy'


def test_what_is_no_environment_is_refused(tmp_path):
    with pytest.raises(UserError, match='found SimpleNamespace'):
        dreamerv3.wrap(__import__('types').SimpleNamespace())
    with pytest.raises(UserError, match=r'--run\.setps'):
        dreamerv3.train(object(), tmp_path, run={'setps': 3})


@pytest.mark.parametrize('name', ['Echo-v0', 'gym_Echo-v0'])
def test_an_id_of_gymnasium_and_one_block_as_text(name, echo, tmp_path):
    flags = {'run': {'steps': 60}, 'logger': {'outputs': ['jsonl']}, 'random_agent': True}
    folder = dreamerv3.train(name, tmp_path, configs='debug', **flags)
    config = elements.Config.load(folder / 'config.yaml')
    assert (config.task, config.batch_size) == ('gym_Echo-v0', 8)
    assert (folder / 'metrics.jsonl').read_text()


def test_blocks_as_text_with_commas_or_spaces(tmp_path):
    with pytest.raises(UserError, match="Unknown block 'size1'"):
        dreamerv3.train('dummy_disc', tmp_path, 'debug, size1')


class Sized:
    """Needs arguments, as many environments do."""

    def __init__(self, size, depth):
        raise AssertionError('is not called without its arguments')


@pytest.mark.parametrize(
    ('make_env', 'words'),
    [
        (dict, ('found dict',)),
        (lambda: None, ('returned None',)),
        (Sized, ('the class Sized needs the arguments (size, depth)', 'lambda')),
    ],
)
def test_a_class_that_is_no_environment_or_needs_arguments(make_env, words, tmp_path):
    with pytest.raises(UserError) as caught:
        random_run(make_env, tmp_path)
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_error_inside_of_a_maker_keeps_its_traceback(tmp_path):
    def make():
        return dict() + 1

    with pytest.raises(TypeError, match='unsupported operand'):
        random_run(make, tmp_path)
