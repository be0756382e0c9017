"""The adapter of Minecraft against a double of MineRL."""

import sys

import numpy as np
import pytest

import embodied
from embodied import envs, wrappers
from embodied.envs import minecraftrules as rules
from embodied.envs.minecraft import Minecraft
from tests.envs import fakeminerl, playing


@pytest.fixture(autouse=True)
def minerl(monkeypatch):
    for name, module in fakeminerl.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield
    sys.modules.pop('embodied.envs.minecraftspec', None)  # it stands on the double


def start(task='diamond', **options):
    """An environment after its reset, its world, and a function that acts by name."""
    env = wrappers.wrap(Minecraft(task, **options))
    names = list(rules.actions(task))

    def act(name='noop', reset=False):
        index = np.int32(names.index(name))
        return env.step({'action': index, 'reset': np.bool_(reset)})

    act()
    return fakeminerl.made[-1], act


@pytest.mark.parametrize(('task', 'actions'), [('wood', 12), ('climb', 12), ('diamond', 25)])
def test_tasks_play(task, actions):
    env = envs.make(f'minecraft_{task}', seed=1, length=50)
    assert env.act_space['action'].classes == actions
    seen = playing.play(env, 200, resets=[70])
    last, terminal = playing.ends(seen)
    assert last == [50, 120, 171]
    assert terminal == []
    env.close()
    assert fakeminerl.made[-1].closed


def test_observations():
    world, act = start(logs=True)
    world.inventory.update(log=2, log2=3, planks=4)
    world.life, world.food, world.air, world.equipped = 10.0, 5, 150, 'stone_pickaxe'
    obs = act()
    names = [x for x in sorted(fakeminerl.ITEMS) if x != 'log2']
    assert obs['inventory'][names.index('log')] == 5
    assert obs['inventory'].sum() == 9
    assert names[obs['equipped'].argmax()] == 'stone_pickaxe'
    assert obs['equipped'].sum() == 1
    assert (obs['health'], obs['hunger'], obs['breath']) == (0.5, 0.25, 0.5)
    assert obs['log/inventory/log'] == 5
    assert len([x for x in obs if x.startswith('log/')]) == 12
    world.inventory.update(log=0, log2=0)
    world.equipped = 'other'
    obs = act()
    assert obs['inventory'][names.index('log')] == 0
    assert obs['inventory_max'][names.index('log')] == 5
    assert obs['equipped'].sum() == 0
    assert act(reset=True)['inventory_max'].sum() == 0


def test_images_have_the_size_asked_for():
    env = Minecraft('wood', size=(48, 80))
    assert env.step({'action': 0, 'reset': True})['image'].shape == (48, 80, 3)


def test_the_way_to_a_diamond_pays_once_each():
    world, act = start()
    assert act()['reward'] == 0
    world.inventory['log'] = 2
    assert act()['reward'] == 1
    world.inventory['log'] = 0
    world.inventory['planks'] = 8
    assert act()['reward'] == 1
    world.inventory['log'] = 5
    assert act()['reward'] == 0
    world.inventory.update(dict.fromkeys(rules.MILESTONES, 1))
    assert act()['reward'] == 10
    act(reset=True)
    world.inventory['log2'] = 1
    assert act()['reward'] == 1


def test_every_new_log_pays_for_wood():
    world, act = start('wood')
    rewards = []
    for count in (0, 1, 3, 0, 2):
        world.inventory['log'] = count
        rewards.append(float(act()['reward']))
    assert rewards == [0, 1, 2, 0, 2]


def test_height_pays_for_climb():
    world, act = start('climb')
    rewards = []
    for height in (64.0, 65.5, 63.0):
        world.height = height
        rewards.append(float(act()['reward']))
    assert rewards == [0, 1.5, -2.5]


def test_health_counts_for_every_task():
    for task in ('wood', 'climb', 'diamond'):
        world, act = start(task)
        world.life = 10.0
        np.testing.assert_allclose(act()['reward'], -0.005)
        world.life = 20.0
        np.testing.assert_allclose(act()['reward'], 0.005)


def test_every_action_is_whole_and_accepted():
    world, act = start()
    for name, change in rules.actions('diamond').items():
        act(name)
        sent = world.actions[-1]
        assert sent.keys() == rules.NOOP.keys()
        for key, value in change.items():
            assert np.array_equal(sent[key], value), (name, key)
    assert rules.NOOP['camera'] == [0, 0]  # the world keeps what it is handed


def test_looking_is_limited_up_and_down():
    world, act = start()
    for _ in range(6):
        act('turn_down')
    assert [float(x['camera'][0]) for x in world.actions] == [15, 15, 15, 15, 0, 0]
    for _ in range(9):
        act('turn_up')
    assert [float(x['camera'][0]) for x in world.actions[6:]] == [-15] * 8 + [0]
    act(reset=True)
    act('turn_up')
    assert world.actions[-1]['camera'].tolist() == [-15, 0]


@pytest.mark.parametrize(('speed', 'steps'), [(1.0, 30), (100.0, 1)])
def test_attack_is_held_where_blocks_break_slowly(speed, steps):
    world, act = start(break_speed=speed)
    act('attack')
    for _ in range(40):
        act('forward')
    assert [x['attack'] for x in world.actions] == [1] * steps + [0] * (41 - steps)
    assert all(x['forward'] for x in world.actions[1:])
    assert bool(world.start) == (speed != 1)
    assert all('BreakSpeedMultiplier' in x for x in world.start)


def test_jump_is_held():
    world, act = start()
    act('jump')
    for _ in range(15):
        act()
    assert [x['jump'] for x in world.actions] == [1] * 10 + [0] * 6
    act('jump')
    act(reset=True)
    act()
    assert world.actions[-1]['jump'] == 0


def test_death_is_terminal_and_a_time_limit_is_not():
    world, act = start()
    world.die = True
    obs = act()
    assert (obs['is_last'], obs['is_terminal']) == (True, True)
    assert act()['is_first']
    world.truncated = True
    obs = act()
    assert (obs['is_last'], obs['is_terminal']) == (True, False)
    assert act()['is_first']


def test_a_lost_connection_ends_with_what_was_seen_before():
    world, act = start()
    world.inventory['log'] = 1
    before = act()
    world.fail = True
    obs = act()
    assert (obs['is_last'], obs['is_terminal'], obs['reward']) == (True, False, 0)
    np.testing.assert_array_equal(obs['inventory'], before['inventory'])
    assert act()['is_first']


def test_seeds():
    playing.differ(lambda seed: envs.make('minecraft_wood', seed=seed))
    seeds = fakeminerl.made[-1].seeds
    playing.play(envs.make('minecraft_wood', seed=4, length=3), 12)
    seeds = fakeminerl.made[-1].seeds
    assert len(set(seeds)) == 3  # one for each episode


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, 'minerl', None)
    with pytest.raises(embodied.UserError, match=r"'minerl'[^$]*by hand[^$]*env_python"):
        envs.make('minecraft_wood')
