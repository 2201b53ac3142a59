"""The coordinates in which NUTS starts: centred at the mode and scaled by the curvature there.

Newton's method with the Hessian's eigenvalues by their absolute values, so that it climbs where the density is not
log-concave, and with steps halved until they gain. It always gives a frame: where there is no mode, or where the
numbers are not finite, the frame is wrong, and NUTS has more to learn.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.inference.collapse import Prepared, log_density, parts_of
from fedstein.models.base import Model

STEPS = 100
CLOSE = 1e-6  # the gain that a step still promises, in nats: the frame need not be exact
REACH = 5.0  # the longest step, in sds of the curvature at hand


class Frame(NamedTuple):
    """x = centre + root z."""

    centre: Array
    root: Array


def laplace_frame(model: Model, ready: Prepared, start: np.ndarray) -> Frame:
    """The frame of the Laplace approximation; call it with 64 bits enabled.

    Args:
        model: The model.
        ready: The sums.
        start: Where the search begins, in the coordinates that NUTS moves.

    Returns:
        The mode and a root of the inverse curvature. If the search fails, the start and the sites' own widths.
    """
    centre = np.asarray(start, np.float64)
    look = _look(model, ready, centre)
    if not _finite(look):
        return fallback(model, ready, start)
    for _ in range(STEPS):
        height, gradient, hessian = look
        values, axes = np.linalg.eigh(-hessian)
        values = np.maximum(np.abs(values), 1e-8 * max(float(np.abs(values).max()), 1e-300))
        along = (axes.T @ gradient) / values
        if gradient @ (axes @ along) < CLOSE:
            break
        reach = float(np.sqrt(np.sum(values * along**2)))
        length = min(1.0, REACH * max(1.0, np.sqrt(len(centre))) / reach)
        while length > 1e-6:
            tried = _look(model, ready, centre + length * (axes @ along))
            if _finite(tried) and tried[0] > height:
                break
            length /= 2
        else:
            break
        centre, look = centre + length * (axes @ along), tried
    return Frame(jnp.asarray(centre), jnp.asarray(axes / np.sqrt(values)))


def fallback(model: Model, ready: Prepared, start: np.ndarray) -> Frame:
    """Zero for a start that is not finite, and the widths of Lambda + 1."""
    moved = parts_of(model).moved
    precision = np.asarray(ready.sums.precision)[np.ix_(moved, moved)]
    values, axes = np.linalg.eigh(precision)
    centre = np.where(np.isfinite(start), start, 0.0)
    return Frame(jnp.asarray(centre), jnp.asarray(axes / np.sqrt(np.abs(values) + 1.0)))


def _look(model: Model, ready: Prepared, point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    height, gradient, hessian = _derivatives(model, ready, jnp.asarray(point))
    return float(height), np.asarray(gradient), np.asarray(hessian)


@partial(jax.jit, static_argnums=0)
def _derivatives(model: Model, ready: Prepared, point: Array) -> tuple[Array, Array, Array]:
    def at(point: Array) -> Array:
        return log_density(model, ready, point)

    return at(point), jax.grad(at)(point), jax.hessian(at)(point)


def _finite(look: tuple[float, np.ndarray, np.ndarray]) -> bool:
    return bool(np.isfinite(look[0]) and np.isfinite(look[1]).all() and np.isfinite(look[2]).all())
