"""PinPad: moves, pads, reward, countdown and what is seen of them."""

import numpy as np
import pytest

from embodied import envs
from embodied.envs.pinpadrooms import ROOMS
from tests.envs import playing

DOWN, UP, RIGHT, LEFT = 1, 2, 3, 4


def walk(env, place, goal):
    """Steps from a place to another, first along x, then along y; rooms have no inner walls."""
    seen = []
    for axis, (more, less) in enumerate(((RIGHT, LEFT), (DOWN, UP))):
        for _ in range(abs(goal[axis] - place[axis])):
            action = more if goal[axis] > place[axis] else less
            seen.append(env.step({'action': action, 'reset': False}))
    return seen


def position(image):
    """Cell (x, y) of the player."""
    (where,) = np.argwhere((image[::4, ::4] == 0).all(-1))
    return int(where[1]), int(where[0])


def test_rooms_have_their_pads_inside_of_walls():
    for count, (_, rows) in enumerate(ROOMS.items(), 3):
        assert (len(rows), {len(x) for x in rows}) == (14, {16})
        assert {*''.join(rows)} - {'#', ' '} == {str(i + 1) for i in range(count)}
        ring = rows[0] + rows[-1] + ''.join(x[0] + x[-1] for x in rows)
        assert {*ring} == {'#'}
        assert all('#' not in x[1:-1] for x in rows[1:-1])


@pytest.mark.parametrize('task', ROOMS)
def test_tasks_play(task):
    seen = playing.play(envs.make(f'pinpad_{task}', length=120), 250, resets=[60])
    assert playing.ends(seen) == ([180], [])  # 60 + 120


def test_seeds():
    playing.differ(lambda seed: envs.make('pinpad_three', seed=seed))


def test_moves_and_walls():
    env = envs.make('pinpad_three', seed=1)
    obs = env.step({'action': 0, 'reset': True})
    x, y = position(obs['image'])
    for action, place in [
        (DOWN, (x, y + 1)),
        (UP, (x, y)),
        (LEFT, (x - 1, y)),
        (RIGHT, (x, y)),
    ]:
        assert position(env.step({'action': action, 'reset': False})['image']) == place
    for _ in range(20):
        obs = env.step({'action': UP, 'reset': False})
    assert position(obs['image']) == (x, 1)


def test_pads_in_order_pay_and_start_anew():
    env = envs.make('pinpad_three', seed=0)
    place, total = position(env.step({'action': 0, 'reset': True})['image']), 0.0
    # Pad 3 of this room is on the top right, pad 2 below in the middle, pad 1 on the top left.
    middle = (8, 6)
    for goal in (middle, (2, 6), (2, 3), (7, 6), (7, 10), middle, (13, 6), (13, 4)):
        assert total == 0
        seen = walk(env, place, goal)
        total += sum(x['reward'] for x in seen)
        place = goal
    image = seen[-1]['image']
    assert total == 10
    assert image[14 * 4, [4, 12, 20]].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert image[6 * 4, 32].tolist() == [223, 255, 223]
    assert image[4, 60].tolist() == [192, 192, 192]
    assert image[5, 56].tolist() == [0, 0, 255]  # the pad that the player stands on
    assert image[5, 8].tolist() == [255, 229, 229]  # another
    rest = [env.step({'action': 0, 'reset': False}) for _ in range(10)]
    assert sum(x['reward'] for x in rest) == 0
    assert all(x['image'][24, 32].tolist() == [223, 255, 223] for x in rest[:9])
    assert (rest[9]['image'][14 * 4, 12:] == 192).all()  # at most the pad of the new start
    assert not any(x['is_last'] for x in rest)


def test_a_wrong_order_pays_nothing():
    env = envs.make('pinpad_three', seed=0)
    place = position(env.step({'action': 0, 'reset': True})['image'])
    for goal in ((8, 6), (13, 6), (13, 4), (8, 6), (7, 10), (2, 6), (2, 3)):
        assert sum(x['reward'] for x in walk(env, place, goal)) == 0
        place = goal


@pytest.mark.suites
def test_short_run(tmp_path):
    playing.train(tmp_path, '--configs', 'debug', '--task', 'pinpad_three')
