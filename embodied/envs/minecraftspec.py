"""The world of the Minecraft tasks, in the terms of MineRL 0.4.

Defines classes on those of minerl, so that it is imported where one is built.
"""

from typing import Any

from minerl.herobraine.env_specs.simple_embodiment import SimpleEmbodimentEnvSpec
from minerl.herobraine.hero import handler, handlers, mc

from embodied.envs import minecraftrules as rules

KINDS = {
    'place': handlers.PlaceBlock,
    'equip': handlers.EquipAction,
    'craft': handlers.CraftAction,
    'nearbyCraft': handlers.CraftNearbyAction,
    'nearbySmelt': handlers.SmeltItemNearby,
}


def make(size: tuple[int, int], break_speed: float, height: bool) -> Any:
    """An environment with MineRL's own interface; height: also observe the place."""
    return World(size, break_speed, height).make()


def items() -> list[str]:
    """The names of all items, in a fixed order."""
    return sorted(set(mc.ALL_ITEMS) - {'none', 'other'})


class World(SimpleEmbodimentEnvSpec):
    """A default world by day and night, in which the player starts with nothing."""

    def __init__(self, size: tuple[int, int], break_speed: float, height: bool):
        self.break_speed = break_speed
        self.height = height
        super().__init__(name='DreamerWorld-v0', resolution=(size[1], size[0]))

    def create_agent_start(self) -> list:
        return [BreakSpeed(self.break_speed)] if self.break_speed != 1 else []

    def create_agent_handlers(self) -> list:
        return []

    def create_observables(self) -> list:
        place = [handlers.ObservationFromCurrentLocation()] if self.height else []
        return [
            handlers.POVObservation(self.resolution),
            handlers.FlatInventoryObservation(items()),
            handlers.EquippedItemObservation(
                [*items(), 'other'], _default='air', _other='other'
            ),
            handlers.ObservationFromLifeStats(),
            *place,
        ]

    def create_actionables(self) -> list:
        choices: dict[str, list[str]] = {key: ['none'] for key in KINDS}
        for change in {**rules.BASIC, **rules.CRAFT}.values():
            for key in KINDS:
                if key in change and change[key] not in choices[key]:
                    choices[key].append(change[key])
        return super().create_actionables() + [
            kind(choices[key], _other='none', _default='none') for key, kind in KINDS.items()
        ]

    def create_rewardables(self) -> list:
        return []

    def create_monitors(self) -> list:
        return []

    def create_server_initial_conditions(self) -> list:
        return [
            handlers.TimeInitialCondition(allow_passage_of_time=True, start_time=0),
            handlers.SpawningInitialCondition(allow_spawning=True),
        ]

    def create_server_decorators(self) -> list:
        return []

    def create_server_world_generators(self) -> list:
        return [handlers.DefaultWorldGenerator(force_reset=True)]

    def create_server_quit_producers(self) -> list:
        return [handlers.ServerQuitWhenAnyAgentFinishes()]

    def is_from_folder(self, folder: str) -> bool:
        return folder == 'none'

    def determine_success_from_rewards(self, rewards: list) -> bool:
        return True

    def get_docstring(self) -> str:
        return self.__class__.__doc__ or ''


class BreakSpeed(handler.Handler):
    """Blocks break so many times faster; needs a MineRL with that mission element."""

    def __init__(self, multiplier: float):
        self.multiplier = multiplier

    def to_string(self) -> str:
        return f'break_speed({self.multiplier})'

    def xml_template(self) -> str:
        return '<BreakSpeedMultiplier>{{multiplier}}</BreakSpeedMultiplier>'
