"""Convolutions as matrix products, because XLA's own are slow on a CPU if weights need gradients.

``as_products(function)`` traces a function to a jaxpr and evaluates it again with two primitives replaced:

- ``conv_general_dilated`` without groups: the windows of the input become rows of a matrix (k slices side by side for a
  window of k places), and one matrix product with the kernel gives the outputs;
- ``reduce_window_max`` with windows that do not overlap: a maximum over axes of a reshaped array.

Values and gradients stay the same up to rounding (if several entries of a pooled window are equal, the gradient is
shared among them instead of going to the first). Everything else, convolutions with groups included, runs as it was.
The replacement applies at the top level and inside ``jit``; bodies of loops and branches are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def as_products(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the convolutions of a function.

    Args:
        function: A pure function of pytrees of arrays.

    Returns:
        The function with the same values, for use inside ``jax.jit``.
    """

    def replaced(*arguments: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if not _replaceable(traced.jaxpr):
            return function(*arguments)
        found = _evaluate(traced.jaxpr, traced.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return replaced


def _inner(parameters: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs in the parameters of an equation."""
    for value in parameters.values():
        for entry in value if isinstance(value, tuple | list) else (value,):
            if hasattr(entry, "jaxpr"):
                yield entry.jaxpr
            elif hasattr(entry, "eqns"):
                yield entry


def _replaceable(jaxpr: Any) -> bool:
    """Whether a jaxpr has a primitive to replace, at the top level or inside ``jit``."""
    return any(
        _is_plain_convolution(e)
        or _is_plain_pooling(e)
        or (e.primitive.name in ("jit", "pjit") and any(map(_replaceable, _inner(e.params))))
        for e in jaxpr.eqns
    )


def _is_plain_convolution(equation: Any) -> bool:
    if equation.primitive.name != "conv_general_dilated":
        return False
    p = equation.params
    return p["feature_group_count"] == 1 and p["batch_group_count"] == 1 and all(d == 1 for d in p["lhs_dilation"])


def _is_plain_pooling(equation: Any) -> bool:
    if equation.primitive.name != "reduce_window_max":
        return False
    p, shape = equation.params, equation.invars[0].aval.shape
    window = tuple(p["window_dimensions"])
    return (
        window == tuple(p["window_strides"])
        and all(pad == (0, 0) for pad in p["padding"])
        and all(d == 1 for d in (*p["base_dilation"], *p["window_dilation"]))
        and all(size >= width for size, width in zip(shape, window, strict=True))
    )


def _evaluate(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    from jax.extend.core import Literal  # imported here, because it imports thirty modules that nothing else needs

    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in jaxpr.eqns:
        values, primitive = [read(v) for v in equation.invars], equation.primitive
        if _is_plain_convolution(equation):
            found = [convolution(values[0], values[1], equation.params)]
        elif _is_plain_pooling(equation):
            found = [pooling(values[0], equation.params["window_dimensions"])]
        elif primitive.name in ("jit", "pjit") and any(map(_replaceable, _inner(equation.params))):
            closed = equation.params["jaxpr"]
            found = _evaluate(closed.jaxpr, closed.consts, values)
        else:
            found = primitive.bind(*values, **primitive.get_bind_params(equation.params))
            found = found if primitive.multiple_results else [found]
        known.update(zip(equation.outvars, found, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def convolution(inputs: Array, kernel: Array, parameters: dict[str, Any]) -> Array:
    """A convolution as the product of the matrix of windows with the kernel.

    Args:
        inputs: The left operand of ``jax.lax.conv_general_dilated``.
        kernel: Its right operand.
        parameters: The parameters of the primitive.

    Returns:
        What the primitive returns.
    """
    numbers = parameters["dimension_numbers"]
    strides, dilation = parameters["window_strides"], parameters["rhs_dilation"]
    source = inputs.transpose((numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1]))
    weights = kernel.transpose((*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0]))
    padding = [(0, 0, 0), *((low, high, 0) for low, high in parameters["padding"]), (0, 0, 0)]
    source = jax.lax.pad(source, jnp.zeros((), source.dtype), padding)
    window = weights.shape[:-2]
    sizes = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(source.shape[1:-1], window, dilation, strides, strict=True)
    ]
    rows, channels = source.shape[0], source.shape[-1]
    slices = []
    for place in np.ndindex(*window):
        first = [p * d for p, d in zip(place, dilation, strict=True)]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, sizes, strides, strict=True)]
        slices.append(jax.lax.slice(source, (0, *first, 0), (rows, *last, channels), (1, *strides, 1)))
    windows = jnp.concatenate(slices, axis=-1).reshape(-1, math.prod(window) * channels)
    found = (windows @ weights.reshape(-1, weights.shape[-1])).reshape(rows, *sizes, weights.shape[-1])
    order = np.argsort((numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1]))
    return found.transpose(order)


def pooling(inputs: Array, window: Sequence[int]) -> Array:
    """The maximum over windows that lie side by side; what is left at the far ends belongs to no window."""
    whole = tuple(size // width * width for size, width in zip(inputs.shape, window, strict=True))
    kept = jax.lax.slice(inputs, (0,) * inputs.ndim, whole)
    shape, axes = [], []
    for size, width in zip(whole, window, strict=True):
        shape.append(size // width)
        if width > 1:
            axes.append(len(shape))
            shape.append(width)
    return kept.reshape(shape).max(axis=tuple(axes))
