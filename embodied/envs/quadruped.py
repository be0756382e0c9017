"""The quadruped of the Control Suite as a walker that tasks of locomotion can use.

Defines classes on those of dm_control, so that it is imported where one is built.
"""

import pathlib

import numpy as np
from dm_control import composer, mjcf, suite
from dm_control.composer.observation import observable
from dm_control.locomotion.walkers import base, legacy_base

# What belongs to the arena that the suite puts it in.
SCENERY = (
    ('body', 'ball'), ('joint', 'root'), ('site', 'target'),
    ('geom', 'floor'), ('geom', 'terrain'), ('hfield', 'terrain'),
    ('geom', 'wall_px'), ('geom', 'wall_py'), ('geom', 'wall_nx'), ('geom', 'wall_ny'),
    ('material', 'ball'), ('texture', 'ball'), ('material', 'grid'), ('texture', 'grid'),
    ('texture', 'skybox'),
)  # fmt: skip
LEGS = ('front_left', 'front_right', 'back_right', 'back_left')


class Quadruped(legacy_base.Walker):
    """Four legs with four joints each; 12 actuators, most of which move several joints."""

    def _build(self, name='walker', initializer=None):
        super()._build(initializer=initializer)
        path = pathlib.Path(suite.__file__).with_name('quadruped.xml')
        self._mjcf_root = mjcf.from_path(str(path))
        self._mjcf_root.model = name
        for kind, item in SCENERY:
            self._mjcf_root.find(kind, item).remove()
        self._mjcf_root.visual.remove()
        self._mjcf_root.option.remove()
        self._mjcf_root.find('light', 'light').castshadow = False  # draws five times as fast
        # A view from behind, as the ant has one too.
        self._mjcf_root.worldbody.add(
            'camera', name='float_far', pos=[-4, 0, 2], xyaxes=[0, -1, 0, 0.5, 0, 1],
            mode='trackcom', fovy=90,
        )  # fmt: skip

    def _build_observables(self):
        return QuadrupedObservables(self)

    @property
    def mjcf_model(self):
        return self._mjcf_root

    @property
    def upright_pose(self):
        return base.WalkerPose()

    @composer.cached_property
    def actuators(self):
        return self._mjcf_root.find_all('actuator')

    @composer.cached_property
    def root_body(self):
        return self._mjcf_root.find('body', 'torso')

    @composer.cached_property
    def observable_joints(self):
        return self._mjcf_root.find_all('joint')

    @composer.cached_property
    def end_effectors(self):
        return tuple(self._mjcf_root.find('body', f'toe_{leg}') for leg in LEGS)

    @composer.cached_property
    def ground_contact_geoms(self):
        return tuple(geom for toe in self.end_effectors for geom in toe.find_all('geom'))

    @composer.cached_property
    def egocentric_camera(self):
        return self._mjcf_root.find('camera', 'egocentric')

    def aliveness(self, physics):
        """0 where it stands upright, -1 where it lies on its back."""
        return (physics.bind(self.root_body).xmat[-1] - 1.0) / 2.0


class QuadrupedObservables(legacy_base.WalkerObservables):
    """What the quadruped feels of itself."""

    @composer.observable
    def actuator_activation(self):
        return observable.MJCFFeature('act', self._entity.actuators)

    @composer.observable
    def sensors_force(self):
        """Forces at the toes, brought to the scale of the others, as the suite does."""
        return self._squashed('force')

    @composer.observable
    def sensors_torque(self):
        return self._squashed('torque')

    @property
    def proprioception(self):
        return [
            self.joints_pos,
            self.joints_vel,
            self.actuator_activation,
            self.body_height,
            self.end_effectors_pos,
            self.world_zaxis,
        ]

    @property
    def kinematic_sensors(self):
        return [self.sensors_gyro, self.sensors_accelerometer, self.sensors_velocimeter]

    @property
    def dynamic_sensors(self):
        return [self.sensors_force, self.sensors_torque]

    def _squashed(self, kind):
        sensors = self._entity.mjcf_model.sensor.get_children(kind)
        return observable.Generic(
            lambda physics: np.arcsinh(np.ravel(physics.bind(sensors).sensordata))
        )
