"""What the tasks of Minecraft offer as actions, and what they pay."""

from typing import Any

Action = dict[str, Any]

# A choice is what it changes in doing nothing. camera: degrees of pitch and yaw.
NOOP: Action = {
    'camera': [0, 0],
    'forward': 0,
    'back': 0,
    'left': 0,
    'right': 0,
    'attack': 0,
    'sprint': 0,
    'jump': 0,
    'sneak': 0,
    'craft': 'none',
    'nearbyCraft': 'none',
    'nearbySmelt': 'none',
    'place': 'none',
    'equip': 'none',
}
BASIC: dict[str, Action] = {
    'noop': {},
    'attack': {'attack': 1},
    'turn_up': {'camera': [-15, 0]},
    'turn_down': {'camera': [15, 0]},
    'turn_left': {'camera': [0, -15]},
    'turn_right': {'camera': [0, 15]},
    'forward': {'forward': 1},
    'back': {'back': 1},
    'left': {'left': 1},
    'right': {'right': 1},
    'jump': {'jump': 1, 'forward': 1},
    'place_dirt': {'place': 'dirt'},
}
CRAFT: dict[str, Action] = {
    'craft_planks': {'craft': 'planks'},
    'craft_stick': {'craft': 'stick'},
    'craft_crafting_table': {'craft': 'crafting_table'},
    'place_crafting_table': {'place': 'crafting_table'},
    'craft_wooden_pickaxe': {'nearbyCraft': 'wooden_pickaxe'},
    'craft_stone_pickaxe': {'nearbyCraft': 'stone_pickaxe'},
    'craft_iron_pickaxe': {'nearbyCraft': 'iron_pickaxe'},
    'equip_stone_pickaxe': {'equip': 'stone_pickaxe'},
    'equip_wooden_pickaxe': {'equip': 'wooden_pickaxe'},
    'equip_iron_pickaxe': {'equip': 'iron_pickaxe'},
    'craft_furnace': {'nearbyCraft': 'furnace'},
    'place_furnace': {'place': 'furnace'},
    'smelt_iron_ingot': {'nearbySmelt': 'iron_ingot'},
}
MILESTONES = (
    'log', 'planks', 'stick', 'crafting_table', 'wooden_pickaxe', 'cobblestone',
    'stone_pickaxe', 'iron_ore', 'furnace', 'iron_ingot', 'iron_pickaxe', 'diamond',
)  # fmt: skip
LOGGED = ('log', 'cobblestone', 'iron_ingot', 'diamond')
HEALTH = 0.01  # of the change of health, which is a share


def actions(task: str) -> dict[str, Action]:
    """The choices of a task by name."""
    return {**BASIC, **CRAFT} if task == 'diamond' else BASIC


class Reward:
    """What the steps of an episode pay, from what the player has, its health and height."""

    def __init__(self, task: str):
        self._task = task
        self._before: tuple[dict, float, float] = ({}, 0.0, 0.0)
        self._had: set[str] = set()

    def __call__(
        self, inventory: dict[str, float], health: float, height: float, is_first: bool
    ) -> float:
        """Reward of the step that led here; 0 for the first observation."""
        before, self._before = self._before, (dict(inventory), health, height)
        new = {x for x in MILESTONES if inventory.get(x, 0) > 0}
        if is_first:
            self._had = new
            return 0.0
        new -= self._had
        self._had |= new
        reward = HEALTH * (health - before[1])
        if self._task == 'diamond':
            return reward + len(new)
        if self._task == 'climb':
            return reward + height - before[2]
        return reward + max(0.0, inventory.get('log', 0) - before[0].get('log', 0))
