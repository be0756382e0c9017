"""Scans over time whose backward pass is made for recurrent networks.

Differentiated as it is, `jax.lax.scan` keeps every value in between, and adds to the gradient
of every parameter at every step: T small products, each followed by a sum over memory as large
as the parameters. Here the forward pass keeps the products of the linear maps, the backward
pass computes what lies between them again and carries cotangents alone, and one product over
all steps gives the gradient of each kernel.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .nets import BlockLinear, Linear, Norm, Product

f32 = jnp.float32
MAPS = (Linear, BlockLinear, Product)


def scan(
    step: Callable[[Any, Any, Any], tuple[Any, Any]], layers: Any, carry: Any, xs: Any
) -> tuple[Any, Any]:
    """`jax.lax.scan` of step(layers, carry, x) -> (carry, y) over the first axis of xs.

    The gradients are the same up to rounding; there is no forward mode. All parameters of
    `layers` belong to its linear maps and norms, which `step` calls (or their `product` and
    `finish`), and it finds in its arguments all that is differentiated. T is at least 1, and
    axes between time and features are batch axes.
    Raises ValueError for parameters elsewhere.
    """
    modules, treedef = jax.tree.flatten(layers, is_leaf=_is_module)
    if odd := [x.shape for x in modules if eqx.is_array(x)]:
        raise ValueError(f'Found parameters outside of linear maps and norms, of shapes {odd}')
    params, static = eqx.partition(modules, eqx.is_array)
    inputs, fixed = eqx.partition(xs, eqx.is_inexact_array)

    def visit(visits, modules, carry, inputs, fixed):
        stand_ins = [_StandIn(visits, i, module) for i, module in enumerate(modules)]
        return step(treedef.unflatten(stand_ins), carry, eqx.combine(inputs, fixed))

    @jax.custom_vjp
    def run(params, carry, inputs, fixed):
        layers = treedef.unflatten(eqx.combine(params, static))
        return jax.lax.scan(
            lambda carry, x: step(layers, carry, x), carry, eqx.combine(inputs, fixed)
        )

    def forward(params, carry, inputs, fixed):
        modules = eqx.combine(params, static)

        def body(carry, xs):
            visits = _Visits()
            new, y = visit(visits, modules, carry, *xs)
            return new, (y, carry, visits.products)

        last, (ys, carries, products) = jax.lax.scan(body, carry, (inputs, fixed))
        return (last, ys), (params, carries, inputs, fixed, products)

    def backward(residuals, cotangents):
        params, carries, inputs, fixed, products = residuals
        modules = eqx.combine(params, static)
        back = [_transposed(x) if isinstance(x, MAPS) else None for x in modules]
        first = jax.tree.map(lambda x: x[0], (carries, inputs, fixed))
        calls, places = [], []

        def outputs():
            visits = _Visits()
            visit(visits, modules, *first)
            calls.extend(visits.calls)
            return visits.outs

        outs = jax.eval_shape(outputs)

        def body(cotangent, xs):
            (carry, inputs, fixed, products), of_y = xs

            def again(carry, inputs, taps):
                visits = _Visits(products, back, taps)
                return visit(visits, modules, carry, inputs, fixed), visits.seen

            taps = [jnp.zeros(x.shape, x.dtype) for x in outs]
            _, pullback, seen = jax.vjp(again, carry, inputs, taps, has_aux=True)
            carry, inputs, taps = pullback((cotangent, of_y))
            unique, places[:] = _once([*seen, *taps])
            return carry, (inputs, unique)

        xs = (carries, inputs, fixed, products), cotangents[1]
        carry, (inputs, kept) = jax.lax.scan(body, cotangents[0], xs, reverse=True)
        ends = [kept[i] for i in places]
        found = _gradients(modules, calls, ends[: len(outs)], ends[len(outs) :])
        return found, carry, inputs, None

    run.defvjp(forward, backward)
    return run(params, carry, inputs, fixed)


def _gradients(
    modules: list[Any], calls: list[tuple[int, str]], seen: list[Array], taps: list[Array]
) -> list[Any]:
    """Gradients of all modules' parameters, summed over the calls of each."""
    found = [jax.tree.map(jnp.zeros_like, eqx.filter(x, eqx.is_array)) for x in modules]
    for (index, name), x, tap in zip(calls, seen, taps, strict=True):
        gradient = _gradient(modules[index], name, x, tap)
        found[index] = jax.tree.map(jnp.add, found[index], gradient)
    return found


def _gradient(module: Any, name: str, x: Array, tap: Array) -> Any:
    """Gradient of a module's parameters by all inputs and cotangents (T, …) of a call.

    Sums are in float32, whatever the dtype of both, and over the axes as they are: a batch that
    is split over devices stays where it is.
    """
    if not isinstance(module, MAPS) or name == 'finish':
        params, static = eqx.partition(module, eqx.is_array)
        call = lambda params: getattr(eqx.combine(params, static), name)(x.astype(f32))
        return jax.vjp(call, params)[1](tap.astype(f32))[0]
    tap = tap.reshape(*x.shape[:-1], -1)
    gradient = jax.tree.map(jnp.zeros_like, eqx.filter(module, eqx.is_array))
    gradient = eqx.tree_at(lambda g: g.kernel, gradient, _kernel_gradient(module, x, tap))
    if name == '__call__' and not isinstance(module, Product):
        bias = _contract(jnp.ones(tap.shape[:-1], tap.dtype), tap)
        gradient = eqx.tree_at(lambda g: g.bias, gradient, bias)
    return gradient


def _kernel_gradient(module: Any, x: Array, tap: Array) -> Array:
    if not isinstance(module, BlockLinear):
        return _contract(x, tap)
    groups = lambda y: y.reshape(*y.shape[:-1], len(module.kernel), -1)
    return jax.vmap(_contract, (-2, -2))(groups(x), groups(tap))


def _contract(x: Array, y: Array) -> Array:
    """Product of both over all axes but the last of y, and of x where that has as many."""
    lead = tuple(range(y.ndim - 1))
    return jax.lax.dot_general(x, y, ((lead, lead), ((), ())), preferred_element_type=f32)


def _once(arrays: list[Array]) -> tuple[list[Array], list[int]]:
    """The arrays without those in the list twice, and the place of each among them."""
    unique = {id(x): x for x in arrays}
    place = {name: i for i, name in enumerate(unique)}
    return list(unique.values()), [place[id(x)] for x in arrays]


class _Visits:
    """The calls of a step's modules in order: module and method, input, output, product.

    With products the maps give these instead of multiplying, and what comes back to the output
    of a call is the gradient of its tap.
    """

    def __init__(self, products=None, back=None, taps=None):
        self.again = None if products is None else iter(products)
        self.back, self.taps = back, iter(taps or ())
        self.calls, self.seen, self.outs, self.products = [], [], [], []

    def __call__(self, index: int, module: Any, name: str, x: Array) -> Array:
        self.calls.append((index, name))
        self.seen.append(x)
        if isinstance(module, MAPS) and name != 'finish':
            if self.again is None:
                y = module.product(x)
            else:
                y = _replayed(next(self.again), self.back[index], x)
            self.products.append(y)
            if name == '__call__':
                y = module.finish(y)
        else:
            y = getattr(module, name)(x)
        self.outs.append(y)
        return y if self.again is None else _tapped(y, next(self.taps))


class _StandIn:
    """Takes the place of a linear map or norm in a step, and tells of its calls."""

    def __init__(self, visits: _Visits, index: int, module: Any):
        self._visits, self._index, self._module = visits, index, module

    def __call__(self, x: Array) -> Array:
        return self._visits(self._index, self._module, '__call__', x)

    def product(self, x: Array) -> Array:
        return self._visits(self._index, self._module, 'product', x)

    def finish(self, product: Array) -> Array:
        return self._visits(self._index, self._module, 'finish', product)


@jax.custom_vjp
def _tapped(y: Array, tap: Array) -> Array:
    """y; what comes back to it comes back to the tap as well, which is not read."""
    return y


_tapped.defvjp(lambda y, tap: (y, None), lambda _, cotangent: (cotangent, cotangent))


@jax.custom_vjp
def _replayed(y: Array, back: Any, x: Array) -> Array:
    """y, the product of x known already; back is the map with transposed kernel."""
    return y


_replayed.defvjp(
    lambda y, back, x: (y, back),
    lambda back, cotangent: (None, None, back.product(cotangent)),
)


def _transposed(linear: Any) -> Any:
    kernel = jnp.swapaxes(linear.kernel, -1, -2)
    return eqx.tree_at(lambda x: x.kernel, linear, kernel)


def _is_module(x: Any) -> bool:
    return isinstance(x, (*MAPS, Norm))
