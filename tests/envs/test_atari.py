"""Atari against an independent loop on the emulator."""

import itertools

import numpy as np
import pytest
from PIL import Image

import embodied
from embodied import envs
from embodied.envs.atari import Atari
from tests.envs import playing

pytestmark = pytest.mark.suites
PLAIN = {'sticky': False, 'noops': 0}


class Emulator:
    """The same emulator, driven by hand."""

    def __init__(self, game, seed=0, sticky=0.0):
        import ale_py
        from ale_py import roms

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt('random_seed', seed)
        self.ale.setFloat('repeat_action_probability', sticky)
        self.ale.loadROM(roms.get_rom_path(game))
        self.ale.reset_game()
        self.screens = [self.ale.getScreenRGB()]

    def act(self, action, frames=4):
        reward = 0
        for _ in range(frames):
            if not self.ale.game_over():
                reward += self.ale.act(action)
                self.screens.append(self.ale.getScreenRGB())
        return reward

    def image(self, pooling=2, size=(64, 64)):
        screen = np.max(self.screens[-pooling:], 0)
        return np.asarray(Image.fromarray(screen).resize(size[::-1], Image.BILINEAR))


def act(action=0, reset=False):
    return {'action': np.int32(action), 'reset': np.bool_(reset)}


@pytest.mark.parametrize('sticky', [False, True])
@pytest.mark.parametrize('game', ['breakout', 'ms_pacman'])
def test_frames_rewards_and_ends_are_those_of_the_emulator(game, sticky):
    """What moves is drawn at another place in every frame, so that pooling shows."""
    env = Atari(game, (64, 64), gray=False, noops=0, sticky=sticky, seed=3)
    ours = Emulator(game, 3, 0.25 if sticky else 0.0)
    actions = ours.ale.getLegalActionSet()
    rng = np.random.default_rng(0)
    obs, ended = env.step(act()), 0
    for step in range(600):
        np.testing.assert_array_equal(obs['image'], ours.image(), f'step {step}')
        assert obs['is_last'] == obs['is_terminal'] == ours.ale.game_over()
        if obs['is_last']:
            ended += 1
            ours.ale.reset_game()
            ours.screens = [ours.ale.getScreenRGB()]
            obs = env.step(act(5))
            assert obs['is_first']
            continue
        action = rng.integers(len(actions))
        obs, reward = env.step(act(action)), ours.act(actions[action])
        assert obs['reward'] == reward
    assert ended >= (game == 'breakout')


def test_idle_frames_after_a_reset_are_drawn_and_pooled():
    """The first observation combines the last frames too, not the last one alone."""
    counts, pooled = set(), False
    for seed in range(20):
        env = Atari('ms_pacman', (210, 160), gray=False, sticky=False, noops=9, seed=seed)
        image = env.step(act())['image']
        ours = Emulator('ms_pacman', seed)
        for count in range(10):
            if np.array_equal(image, ours.image(size=(210, 160))):
                counts.add(count)
                pooled |= not np.array_equal(image, ours.screens[-1])
                break
            ours.act(0, 1)
        else:
            pytest.fail('no number of idle frames gives this image')
    assert len(counts) > 4
    assert max(counts) <= 9
    assert pooled


def test_pooling_and_aggregate():
    screens = Emulator('ms_pacman')
    screens.act(0, 8)
    last = np.stack(screens.screens[-3:])
    for aggregate, wanted in (('max', last.max(0)), ('mean', last.mean(0).astype(np.uint8))):
        options = {'pooling': 3, 'aggregate': aggregate, 'gray': False, **PLAIN}
        env = Atari('ms_pacman', (210, 160), **options)
        image = [env.step(act()) for _ in range(3)][-1]['image']
        np.testing.assert_array_equal(image, wanted)


def test_gray_is_the_luma_of_the_resized_image():
    color = Atari('pong', (96, 96), gray=False, **PLAIN).step(act())['image'].astype(float)
    gray = Atari('pong', (96, 96), **PLAIN).step(act())['image']
    assert gray.shape == (96, 96, 1)
    luma = 0.299 * color[..., 0] + 0.587 * color[..., 1] + 0.114 * color[..., 2]
    np.testing.assert_allclose(gray[..., 0], luma, atol=0.51)


def test_action_sets():
    full = Atari('breakout', **PLAIN)
    small = Atari('breakout', actions='needed', **PLAIN)
    assert full.act_space['action'].classes == 18
    assert small.act_space['action'].classes == 4
    right = [x.value for x in full._actions].index(3)  # noop, fire, right, left
    for env, action in ((full, right), (small, 2)):
        env.step(act())
        for _ in range(10):
            obs = env.step(act(action))
        env.final = obs['image']
    np.testing.assert_array_equal(full.final, small.final)


def lose_lives(mode):
    """Flags of each step of one game of breakout that is let go, after its reset."""
    env = Atari('breakout', actions='needed', lives=mode, **PLAIN)
    env.step(act())
    seen = []
    while not seen or not seen[-1]['is_last']:
        seen.append({**env.step(act(1)), 'lives': env._ale.lives()})
    assert env.step(act())['is_first']
    return seen


def test_lives_unused():
    seen = lose_lives('unused')
    assert [x['lives'] for x in seen][-1] == 0
    assert playing.ends(seen) == ([len(seen) - 1], [len(seen) - 1])
    assert sum(bool(x['is_terminal']) for x in seen) == 1


def test_lives_discount():
    seen = lose_lives('discount')
    lives = [5] + [x['lives'] for x in seen]
    lost = [b < a for a, b in itertools.pairwise(lives)]
    assert sum(lost) == 5
    assert [bool(x['is_terminal']) for x in seen] == lost
    assert [bool(x['is_last']) for x in seen] == [False] * (len(seen) - 1) + [True]


def test_lives_reset():
    seen = lose_lives('reset')
    assert {x['lives'] for x in seen[:-1]} == {5}
    assert seen[-1]['lives'] == 4
    assert playing.ends(seen) == ([len(seen) - 1], [len(seen) - 1])


def test_the_frame_limit_is_not_terminal():
    env = Atari('pong', length=40, **PLAIN)
    seen = playing.play(env, 200, resets=[14])
    last, terminal = playing.ends(seen)
    assert last[:3] == [10, 24, 35]  # 10 steps of 4 frames after each reset
    assert terminal == []


def test_autostart_presses_fire():
    env = Atari('breakout', autostart=True, **PLAIN)
    idle = [env.step(act()) for _ in range(60)]
    waits = Atari('breakout', **PLAIN)
    still = [waits.step(act()) for _ in range(60)]
    moves = lambda seen: sum(
        not np.array_equal(a['image'], b['image']) for a, b in itertools.pairwise(seen[5:])
    )
    assert moves(still) == 0
    assert moves(idle) > 20


def test_rewards_are_clipped():
    def rewards(clip):
        env = Atari('space_invaders', clip_reward=clip, seed=1, **PLAIN)
        return [float(x['reward']) for x in playing.play(env, 300)]

    plain, clipped = rewards(False), rewards(True)
    assert max(plain) >= 5
    assert clipped == np.sign(plain).tolist()


@pytest.mark.parametrize(
    ('task', 'shape', 'actions'),
    [('atari_pong', (96, 96, 1), 18), ('atari100k_james_bond', (64, 64, 3), 18)],
)
def test_suites_play_with_the_defaults_of_the_config(task, shape, actions):
    from dreamerv3 import config

    suite = task.partition('_')[0]
    defaults = config.load().env[suite]
    env = envs.make(task, seed=2, **defaults)
    assert env.act_space['action'].classes == actions
    seen = playing.play(env, 200, resets=[77])
    assert seen[0]['image'].shape == shape


def test_seeds():
    playing.differ(lambda seed: envs.make('atari_pong', seed=seed), steps=30)
    playing.differ(lambda seed: Atari('pong', sticky=False, seed=seed), steps=30)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'task': 'pongg'}, 'pong'),
        ({'lives': 'all'}, 'unused, discount, reset'),
        ({'actions': 'some'}, 'all, needed'),
        ({'aggregate': 'sum'}, 'max, mean'),
        ({'pooling': 0}, '1 or more'),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(embodied.UserError, match=words):
        Atari(**{'task': 'pong', **options})


@pytest.mark.parametrize('block', ['atari', 'atari100k'])
def test_short_run(tmp_path, block):
    playing.train(tmp_path, '--configs', block, 'debug')
