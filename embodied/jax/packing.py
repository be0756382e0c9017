"""A tree of parameters as one array, for what treats all of them alike.

XLA makes a kernel of its own for each shape that it meets, which takes some tens of
milliseconds of a core, and starts it for each array. The optimizer does a dozen things to every
parameter; done to one array, that is a dozen kernels instead of hundreds.

Outside of compiled steps the pieces keep their names, see `apart` and `joined`: checkpoints
know nothing of this.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .runtime import names

f32 = jnp.float32
WIDTH = 1024
_ROWS = '/rows'  # what the name of a packed array ends with


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each array of a tree lies: in rows of its own, the last one filled with zeros."""

    tree: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each array holds."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """How many rows each array has."""
        return np.array([-(-size // WIDTH) for size in self.sizes], np.int32)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The first row of each array."""
        return np.cumsum(self.lengths, dtype=np.int32) - self.lengths

    def pieces(self, rows: Any) -> dict[str, Any]:
        """The arrays by name; of numpy they share the memory of `rows`."""
        flat, starts = rows.reshape(-1), [WIDTH * row for row in self.starts.tolist()]
        return {
            name: flat[start : start + size].reshape(shape)
            for name, start, size, shape in zip(
                self.names, starts, self.sizes, self.shapes, strict=True
            )
        }

    def cut(self, rows: Array, count: Array) -> list[Array]:
        """The arrays in order; those of one size by the same kernel, see `_as_data`."""
        starts, lengths = _as_data(self.starts.tolist(), count), self.lengths.tolist()
        cut = jax.lax.dynamic_slice_in_dim
        return [
            cut(rows, start, length).reshape(-1)[:size].reshape(shape)
            for start, length, size, shape in zip(
                starts, lengths, self.sizes, self.shapes, strict=True
            )
        ]

    def join(self, pieces: Mapping[str, Any], xp: Any = np) -> Any:
        """The inverse of `pieces`, float32; xp is numpy or jax.numpy."""
        parts = []
        for name, size in zip(self.names, self.sizes, strict=True):
            parts.append(xp.asarray(pieces[name], np.float32).reshape(-1))
            if fill := -size % WIDTH:
                parts.append(xp.zeros(fill, np.float32))
        return xp.concatenate(parts).reshape(-1, WIDTH)


class Packed(eqx.Module):
    """Arrays of float32 as rows of one; what is done to the rows is done to each of them."""

    rows: Float[Array, 'rows width']
    layout: Layout = eqx.field(static=True)

    @classmethod
    def of(cls, tree: Any) -> 'Packed':
        """Pack a tree of arrays."""
        flat = names.flatten(tree)
        shapes = tuple(x.shape for x in flat.values())
        layout = Layout(jax.tree.structure(tree), tuple(flat), shapes)
        return cls(layout.join(flat, jnp), layout)

    def unpack(self, count: Int[Array, '']) -> Any:
        """The tree of arrays again; count: a number that XLA does not know, see `_as_data`."""
        pieces = lambda rows, count: list(self.layout.pieces(rows).values())
        arrays = jax.lax.platform_dependent(
            self.rows, count, cpu=self.layout.cut, default=pieces
        )
        return jax.tree.unflatten(self.layout.tree, arrays)

    def squares(self) -> Float[Array, 'arrays']:
        """Sum of the squares of each array.

        By masks: sums over segments are loops on CPUs, and on GPUs in no fixed order.
        """
        rows = jnp.square(self.rows).sum(1)
        return jnp.where(self._owns(), rows[None], 0).sum(1)

    def each(self, values: Float[Array, 'arrays']) -> Float[Array, 'rows 1']:
        """One number for each array, as a factor of its rows."""
        lengths = self.layout.lengths
        return values[np.repeat(np.arange(len(lengths)), lengths)][:, None]

    def _owns(self) -> Array:
        """Whether a row is of an array, (arrays, rows)."""
        first, row = self.layout.starts[:, None], jnp.arange(len(self.rows))[None]
        return (row >= first) & (row < first + self.layout.lengths[:, None])


def _as_data(numbers: list[int], count: Array) -> list[Array]:
    """Numbers as what XLA cannot know beforehand: they come out of a loop that is never run,
    which it does not know either, because it depends on a count.

    Places that it knows it builds into a kernel for each piece; for places that are data one
    kernel does for all pieces of a size.
    """
    never = -jnp.abs(count)
    return jax.lax.fori_loop(0, never, lambda i, xs: [x + i for x in xs], numbers)


def layouts(template: Any) -> dict[str, Layout]:
    """The layouts of all packed trees in a tree, by the names of their rows."""
    nodes = jax.tree_util.tree_leaves_with_path(template, is_leaf=_is_packed)
    return {names.name(path) + _ROWS: node.layout for path, node in nodes if _is_packed(node)}


def apart(flat: Mapping[str, Any], layouts: Mapping[str, Layout]) -> dict[str, Any]:
    """Arrays by name, with each piece of those that are packed under a name of its own."""
    found = {}
    for name, value in flat.items():
        if name in layouts:
            pieces = layouts[name].pieces(value)
            found |= {_piece(name, piece): x for piece, x in pieces.items()}
        else:
            found[name] = value
    return found


def joined(flat: Mapping[str, Any], layouts: Mapping[str, Layout]) -> dict[str, Any]:
    """The inverse of `apart`, for numpy. Raises KeyError if a piece is missing."""
    flat = dict(flat)
    for name, layout in layouts.items():
        pieces = {piece: flat.pop(_piece(name, piece)) for piece in layout.names}
        flat[name] = layout.join(pieces)
    return flat


def _piece(name: str, piece: str) -> str:
    return f'{name.removesuffix(_ROWS)}/{piece}'


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)
