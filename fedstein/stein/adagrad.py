"""The DSVGD authors' "AdaGrad": history g^2 at first, then 0.9 h + 0.1 g^2; reset at each call."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.kernels import Particles


class AdaGrad(NamedTuple):
    """theta <- theta + step_size * phi / (epsilon + sqrt(history))."""

    step_size: float
    epsilon: float
    decay: float = 0.9

    def init(self, particles: Particles) -> Particles:
        return jax.tree.map(jnp.zeros_like, particles)

    def step(
        self, number: Array, particles: Particles, phi: Particles, history: Particles, scale: Array | float = 1.0
    ) -> tuple[Particles, Particles]:
        dtype = jax.tree.leaves(phi)[0].dtype
        keep = jnp.where(number == 0, 0.0, self.decay).astype(dtype)
        add = jnp.where(number == 0, 1.0, 1 - self.decay).astype(dtype)
        history = jax.tree.map(lambda h, p: keep * h + add * p * p, history, phi)

        def move(theta: Array, p: Array, h: Array) -> Array:
            return theta + scale * self.step_size * p / (self.epsilon + jnp.sqrt(h))

        return jax.tree.map(move, particles, phi, history), history
