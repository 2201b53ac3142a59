"""L steps of SVGD along a target made of a score and KDE factors: one compiled loop."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture
from fedstein.stein.kernels import Particles, centred


def svgd_loop(
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
    """Move particles by a number of SVGD steps.

    The loop keeps the particles relative to the mean of the start, where distances do not cancel in float32.

    Args:
        steps: The number of steps.
        start: The particles to move, N x d or blocks.
        score: The part of the target's score that is no KDE, called as ``score(step, blocks)``, or None.
        mixtures: The KDE factors of the target.
        direction: ``svgd.tilted_direction``, with its settings (kernel, KDE bandwidth and so on) bound.
        optimiser: The step rule.
        linear: A factor c of theta in the score that is not part of ``score`` (see ``svgd.tilted_direction``), or None.
        relative: Call ``score(step, offset, origin)`` instead, where the blocks are offset + origin. This saves one
            large array.
        scale: A factor of the optimiser's step size.
        history: The optimiser's history after ``taken`` steps of an earlier loop that this one continues, or None.
        taken: How many steps the earlier loop has taken.

    Returns:
        The moved particles and the optimiser's history.
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
