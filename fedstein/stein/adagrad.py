"""The DSVGD authors' "AdaGrad": history g^2 at first, then 0.9 h + 0.1 g^2; reset at each call."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.kernels import Particles


class AdaGrad(NamedTuple):
    """The rule theta <- theta + step_size * phi / (epsilon + sqrt(history)).

    Attributes:
        step_size: The step size.
        epsilon: What is added to the root of the history.
        decay: The share of the history that a step after the first one keeps.
    """

    step_size: float
    epsilon: float
    decay: float = 0.9

    def init(self, particles: Particles) -> Particles:
        """Make the history before the first step.

        Args:
            particles: The particles that will be moved.

        Returns:
            Zeros in the form of the particles.
        """
        return jax.tree.map(jnp.zeros_like, particles)

    def step(
        self, number: Array, particles: Particles, phi: Particles, history: Particles, scale: Array | float = 1.0
    ) -> tuple[Particles, Particles]:
        """Take one step.

        Args:
            number: How many steps were taken before; at 0 the history becomes phi^2 as it is.
            particles: The particles to move.
            phi: The direction, in the form of the particles.
            history: The history that ``init`` or the previous step returned.
            scale: A factor of the step size.

        Returns:
            The moved particles and the new history.
        """
        dtype = jax.tree.leaves(phi)[0].dtype
        keep = jnp.where(number == 0, 0.0, self.decay).astype(dtype)
        add = jnp.where(number == 0, 1.0, 1 - self.decay).astype(dtype)
        history = jax.tree.map(lambda h, p: keep * h + add * p * p, history, phi)

        def move(theta: Array, p: Array, h: Array) -> Array:
            return theta + scale * self.step_size * p / (self.epsilon + jnp.sqrt(h))

        return jax.tree.map(move, particles, phi, history), history
