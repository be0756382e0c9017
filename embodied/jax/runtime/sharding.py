"""Meshes of devices, and how arrays lie on them.

A mesh has the axes data, fsdp (fully sharded data) and tensor. Batches are split over the
first two; parameters are replicated. Nothing splits parameters yet, so that fsdp and tensor
have the size 1.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from embodied.core.errors import UserError

AXES = ('data', 'fsdp', 'tensor')
BATCH_AXES = ('data', 'fsdp')


def make_mesh(devices: Sequence[jax.Device], sizes: str, flag: str) -> Mesh:
    """Mesh of the devices with axis sizes such as '-1,1,1'; -1 takes what is left.

    Raises UserError if the sizes do not multiply to the number of devices, or if an axis that
    has no meaning yet is larger than 1.
    """
    try:
        shape = [int(size) for size in str(sizes).split(',')]
        grid = np.asarray(devices, object).reshape(shape)
        if len(shape) != len(AXES):
            raise ValueError(shape)
    except ValueError as error:
        raise UserError(
            f'Mesh {sizes!r} does not fit {len(devices)} devices; expected three sizes '
            f'({", ".join(AXES)}) of this product, one of them may be -1 (--{flag})'
        ) from error
    for axis, size in zip(AXES[1:], grid.shape[1:], strict=True):
        if size > 1:
            raise UserError(
                f'Mesh {sizes!r} has {size} parts along {axis}, but parameters are not split '
                f'yet, only batches along data; take --{flag} -1,1,1'
            )
    return Mesh(grid, AXES)


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def split_batch(mesh: Mesh) -> NamedSharding:
    """The first axis is split over the data axes."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def parts(mesh: Mesh) -> int:
    """Number of parts that a batch is split into."""
    return int(np.prod([mesh.shape[axis] for axis in BATCH_AXES]))


def batch_sharding(mesh: Mesh, batch: int) -> NamedSharding:
    """Split if the batch divides evenly, else replicated."""
    return split_batch(mesh) if batch % parts(mesh) == 0 else replicated(mesh)
