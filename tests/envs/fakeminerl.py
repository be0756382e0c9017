"""A double of the package minerl 0.4, as strict as its source: no Java, no world.

`World` has what gym 0.19 gives: reset() -> obs, step(action) -> four values, an error after the
end. Tests change `inventory`, `life`, `height` and so on between the steps.
"""

import copy
import types

import numpy as np

ITEMS = (
    'air', 'cobblestone', 'crafting_table', 'diamond', 'dirt', 'furnace', 'iron_ingot',
    'iron_ore', 'iron_pickaxe', 'log', 'log2', 'planks', 'stick', 'stone_pickaxe',
    'wooden_pickaxe',
)  # fmt: skip
KEYS = ('attack', 'back', 'forward', 'jump', 'left', 'right', 'sneak', 'sprint')
made = []  # worlds, newest last


class World:
    """What a spec makes."""

    def __init__(self, spec):
        self.observed = [x.name for x in spec.create_observables()]
        self.choices = {x.name: x.items for x in spec.create_actionables() if x.items}
        self.start = [x.xml_template() for x in spec.create_agent_start()]
        self.resolution = spec.resolution
        self.seeds, self.actions = [], []
        self.ended, self.closed = True, False
        self.fail = self.die = self.truncated = False
        made.append(self)

    def seed(self, seed=None):
        assert type(seed) is int
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.ended = self.fail = self.die = self.truncated = False
        self.inventory = dict.fromkeys(ITEMS, 0)
        self.life, self.food, self.air, self.height = 20.0, 20, 300, 64.0
        self.equipped, self.shade = 'air', int(self.rng.integers(256))
        return self.observe()

    def step(self, action):
        if self.ended:
            raise RuntimeError('Attempted to step an environment server with done=True')
        for key, value in action.items():
            self.check(key, value)
        self.actions.append(copy.deepcopy(action))
        action['camera'] = None  # what is handed over is not ours any more
        if self.fail:
            self.ended = True
            self.inventory = dict.fromkeys(ITEMS, 9)
            return self.observe(), 0, True, {'error': 'Connection timed out!'}
        self.ended = self.die or self.truncated
        info = {'TimeLimit.truncated': True} if self.truncated else {}
        return self.observe(), 0.0, self.ended, info

    def check(self, key, value):
        if key == 'camera':
            assert value.shape == (2,)
            assert value.dtype == np.float32
            assert np.abs(value).max() <= 180
        elif key in KEYS:
            assert value in (0, 1)
        else:
            assert value in self.choices[key], (key, value)

    def observe(self):
        width, height = self.resolution
        obs = {
            'pov': np.full((height, width, 3), self.shade, np.uint8),
            'inventory': {k: np.array(v) for k, v in self.inventory.items()},
            'equipped_items': {
                'mainhand': {
                    'type': self.equipped, 'damage': np.array(0), 'maxDamage': np.array(0)
                }
            },
            'life_stats': {
                'life': np.array(self.life), 'food': np.array(self.food),
                'air': np.array(self.air), 'is_alive': np.array(True),
            },
            'location_stats': {'ypos': np.array(self.height)},
        }  # fmt: skip
        return {key: obs[key] for key in self.observed}

    def close(self):
        self.closed = True


def handler(name, *parameters, xml=''):
    """A class of handlers with these parameters and no others."""

    class Handler:
        items = None

        def __init__(self, *args, **kwargs):
            given = dict(zip(parameters, args, strict=False)) | kwargs
            if len(args) > len(parameters) or not set(given) <= set(parameters):
                raise TypeError(f'{name} takes {parameters}, not {given}')
            self.name = name
            self.items = given.get('items')
            if self.items:
                assert len(set(self.items)) == len(self.items), 'Duplicate item entry'
                wanted = {given.get('_default', 'none'), given.get('_other', 'other')}
                assert wanted <= set(self.items)

        def xml_template(self):
            return xml

    return Handler


CHOICE = ('items', '_other', '_default')
HANDLERS = {
    'POVObservation': handler('pov', 'video_resolution', 'include_depth'),
    'FlatInventoryObservation': handler('inventory', 'item_list', '_other'),
    'EquippedItemObservation': handler(
        'equipped_items', 'items', 'mainhand', 'offhand', 'armor', '_default', '_other'
    ),
    'ObservationFromLifeStats': handler('life_stats'),
    'ObservationFromCurrentLocation': handler('location_stats'),
    'PlaceBlock': handler('place', *CHOICE),
    'EquipAction': handler('equip', *CHOICE),
    'CraftAction': handler('craft', *CHOICE),
    'CraftNearbyAction': handler('nearbyCraft', *CHOICE),
    'SmeltItemNearby': handler('nearbySmelt', *CHOICE),
    'TimeInitialCondition': handler('time', 'allow_passage_of_time', 'start_time'),
    'SpawningInitialCondition': handler('spawning', 'allow_spawning'),
    'DefaultWorldGenerator': handler('world', 'force_reset', 'generator_options'),
    'ServerQuitWhenAnyAgentFinishes': handler('quit'),
}
ABSTRACT = (
    'create_agent_start', 'create_agent_handlers', 'create_rewardables',
    'create_server_initial_conditions', 'create_server_decorators',
    'create_server_world_generators', 'create_server_quit_producers', 'is_from_folder',
    'determine_success_from_rewards', 'get_docstring',
)  # fmt: skip


class SimpleEmbodimentEnvSpec:
    """The base of specs; a subclass must say all that is abstract."""

    def __init__(self, name, *args, resolution=(64, 64), **kwargs):
        assert name.endswith('-v0')
        assert all(hasattr(self, x) for x in ABSTRACT)
        self.resolution = resolution
        for method in ABSTRACT[:7]:
            assert isinstance(getattr(self, method)(), list)

    def create_actionables(self):
        return [handler(key)() for key in (*KEYS, 'camera')]

    def make(self, fake=False):
        return World(self)


def modules():
    """The package as entries of sys.modules."""

    class Handler:
        """The base of handlers of one's own."""

    content = {
        'minerl': {},
        'minerl.herobraine': {},
        'minerl.herobraine.env_specs': {},
        'minerl.herobraine.env_specs.simple_embodiment': {
            'SimpleEmbodimentEnvSpec': SimpleEmbodimentEnvSpec
        },
        'minerl.herobraine.hero': {},
        'minerl.herobraine.hero.handler': {'Handler': Handler},
        'minerl.herobraine.hero.handlers': HANDLERS,
        'minerl.herobraine.hero.mc': {'ALL_ITEMS': list(ITEMS)},
    }
    result = {}
    for name, values in content.items():
        result[name] = types.ModuleType(name)
        vars(result[name]).update(values, __path__=[])
        parent, _, leaf = name.rpartition('.')
        if parent:
            setattr(result[parent], leaf, result[name])
    return result
