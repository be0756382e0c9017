"""Counts the arithmetic of a function, loops included. Prints nothing by itself.

XLA's cost analysis counts the body of a loop once, however often it runs. So the products
(dots and convolutions), which are nearly all of a model's arithmetic, are counted in the
jaxpr: exactly, from their shapes, times the length of the scans around them. That holds on
every platform, and before anything is compiled. Each multiply-add is two operations.

Taps of a convolution that fall on padding or between dilated entries do not count, as in
XLA's own analysis.
"""

import math
import re
from typing import Any

import jax
import numpy as np
from jax.interpreters import partial_eval


def of_traced(traced: Any) -> int:
    """FLOPs of the products of `jax.jit(fn).trace(...)`, without those nobody uses."""
    jaxpr = traced.jaxpr.jaxpr
    needed, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return of_jaxpr(needed)


def of_jaxpr(jaxpr: Any) -> int:
    """FLOPs of the products in a jaxpr; of branches, the largest.

    Raises ValueError for products in a loop whose length is only known when it runs.
    """
    return sum(_of_equation(eqn) for eqn in jaxpr.eqns)


def loops(compiled: Any) -> int:
    """Number of loops in a compiled function."""
    return len(re.findall(r'[)\s]while\(', compiled.as_text()))


def kernels(compiled: Any) -> int:
    """Number of different kernels in a compiled function, which its compilation takes time for.

    Those that do the same on the same shapes are one, whatever their values are called.
    """
    text = re.sub(r', metadata=\{[^}]*\}', '', compiled.as_text())
    called = set(re.findall(r' fusion\(.*calls=%?([\w.-]+)', text))
    bodies = re.findall(r'^%?([\w.-]+) .*\{\n((?:  .*\n)+)\}', text, re.MULTILINE)
    return len({_anonymous(body) for name, body in bodies if name in called})


def _anonymous(body: str) -> str:
    numbers: dict[str, str] = {}
    return re.sub(r'%[\w.-]+', lambda m: numbers.setdefault(m[0], f'%{len(numbers)}'), body)


def _of_equation(eqn: Any) -> int:
    name, params = eqn.primitive.name, eqn.params
    if name == 'dot_general':
        return _dot(eqn)
    if name == 'conv_general_dilated':
        return _convolution(eqn)
    is_jaxpr = lambda x: hasattr(x, 'eqns')
    inner = [x for x in jax.tree.leaves(params, is_leaf=is_jaxpr) if is_jaxpr(x)]
    counts = [of_jaxpr(x) for x in inner]
    if name == 'scan':
        return params['length'] * sum(counts)
    if name == 'while' and sum(counts):
        raise ValueError('Products in a `while` loop, whose number of rounds is not known')
    return max(counts) if name == 'cond' else sum(counts)


def _dot(eqn: Any) -> int:
    (contracted, _), _ = eqn.params['dimension_numbers']
    shape = eqn.invars[0].aval.shape
    return 2 * eqn.outvars[0].aval.size * math.prod(shape[i] for i in contracted)


def _convolution(eqn: Any) -> int:
    params, (image, kernel) = eqn.params, (x.aval.shape for x in eqn.invars)
    (batch, _, *image_dims), (depth, inputs, *kernel_dims) = (
        params['dimension_numbers'].lhs_spec, params['dimension_numbers'].rhs_spec,
    )  # fmt: skip
    out_dims = params['dimension_numbers'].out_spec[2:]
    out = eqn.outvars[0].aval.shape
    taps = [
        _taps(image[i], kernel[k], out[o], *rest)
        for i, k, o, *rest in zip(
            image_dims, kernel_dims, out_dims, params['window_strides'], params['padding'],
            params['lhs_dilation'], params['rhs_dilation'], strict=True,
        )
    ]  # fmt: skip
    channels = kernel[depth] * kernel[inputs] * image[batch] // params['batch_group_count']
    return 2 * channels * math.prod(taps)


def _taps(
    image: int, kernel: int, out: int, stride: int, padding: tuple[int, int],
    image_dilation: int, kernel_dilation: int,
) -> int:  # fmt: skip
    """Pairs of an output and a tap of the kernel, along one axis, that meet an entry."""
    place = stride * np.arange(out)[:, None] + kernel_dilation * np.arange(kernel) - padding[0]
    inside = (place >= 0) & (place <= image_dilation * (image - 1))
    return int((inside & (place % image_dilation == 0)).sum())
