"""L steps of SVGD along a target made of a score and KDE factors: one compiled loop."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture
from fedstein.stein.kernels import Particles, centred


def walk(
    steps: int,
    start: Particles,
    score: Callable[..., Particles] | None,
    mixtures: tuple[Mixture, ...],
    direction: Callable[..., Particles],
    optimiser: AdaGrad,
    *,
    linear: float | None = None,
    relative: bool = False,
    scale: Array | float = 1.0,
    history: Particles | None = None,
    taken: Array | int = 0,
) -> tuple[Particles, Particles]:
    """Move ``start`` by ``steps`` SVGD steps; returns the particles and the optimiser's history.

    ``score(step, blocks)`` is the part of the target that is no KDE; with ``relative`` it is called as ``score(step,
    offset, origin)``, whose sum the blocks are, and one large array less comes into being. ``linear`` is a factor c of
    theta in the score that is not part of it (``svgd.tilted_direction``). ``scale`` multiplies the optimiser's step
    size; ``history`` after ``taken`` steps goes on with an earlier walk's.

    The loop keeps the particles relative to the mean of the start, where distances do not cancel in float32.
    """
    offset, origin = centred(start)
    shifted = tuple(mixture.relative_to(origin) for mixture in mixtures)

    def step(number: Array, carry: tuple[Particles, Particles]) -> tuple[Particles, Particles]:
        offset, history = carry
        if score is None:
            dense = None
        else:
            at = (offset, origin) if relative else (jax.tree.map(jnp.add, offset, origin),)
            dense = score(number, *at)
        extra = {} if linear is None else {"linear": (linear, origin)}
        return optimiser.step(number + taken, offset, direction(offset, dense, shifted, **extra), history, scale)

    history = optimiser.init(offset) if history is None else history
    offset, history = jax.lax.fori_loop(0, steps, step, (offset, history))
    return jax.tree.map(jnp.add, offset, origin), history
