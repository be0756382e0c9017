"""Names of array leaves: a tree of modules as a flat dict `name -> array`, and back.

A name is the attribute path joined by slashes, such as `enc/mlp/layers/0/linear/kernel`.
Outside of compiled functions the training state is such a dict: fast to dispatch, easy to
select by a regular expression, trivial to save.
"""

from typing import Any

import equinox as eqx
import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey


def _part(key: Any) -> str:
    match key:
        case GetAttrKey(name=name):
            return name
        case DictKey(key=name) | FlattenedIndexKey(key=name):
            return str(name)
        case SequenceKey(idx=index):
            return str(index)
    raise TypeError(f'Tree key of unknown kind: {key!r}')


def name(path: tuple) -> str:
    """Name of what lies at a path of JAX's tree functions."""
    # The container of the trained modules is an implementation detail: users select by
    # `enc/.*`, and the moments of the optimizer are `opt/state/rms/nu/enc/...` likewise.
    return '/'.join(_part(key) for key in path if key != GetAttrKey('model'))


def flatten(tree: Any) -> dict[str, Any]:
    """Array leaves (or their shapes) of a tree by name, in the order of the tree.

    Raises ValueError if two leaves would share a name.
    """
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, _is_leaf))
    flat = {name(path): leaf for path, leaf in leaves}
    if len(flat) != len(leaves):
        names = [name(path) for path, _ in leaves]
        raise ValueError(
            f'Names not unique: {sorted({n for n in names if names.count(n) > 1})}'
        )
    return flat


def unflatten(template: Any, flat: dict[str, Any]) -> Any:
    """The tree of `template` with its array leaves replaced by those of `flat`.

    `flat` is looked up by name, because JAX sorts the keys of a dict that crosses `jit`.
    Raises KeyError if a name is missing.
    """
    arrays, static = eqx.partition(template, _is_leaf)
    filled = jax.tree_util.tree_map_with_path(lambda path, _: flat[name(path)], arrays)
    return eqx.combine(filled, static)


def _is_leaf(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
