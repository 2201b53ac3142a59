"""Priors of the scale sigma = xi^(-1/2) of weights w | xi ~ N(0, 1 / xi), as densities of h = log xi.

    gamma         xi ~ Gamma(a, b):               a h - b exp(h)
    half_normal   sigma ~ half-normal(s):         -exp(-h) / (2 s^2) - h / 2
    half_cauchy   sigma ~ half-Cauchy(s):         -log(1 + exp(-h) / s^2) - h / 2

All are up to a constant, with the Jacobian of h. A Gamma prior with a small rate b has no mass at sigma = 0 but much at
small sigma; the other two are flat in sigma near 0, and the half-Cauchy has a heavy tail (Gelman 2006).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import gamma_draws, gamma_log_density

SCALE_PRIORS = ("gamma", "half_cauchy", "half_normal")
LEAST, MOST = 1e-3, 1e3  # the bounds of sigma at the start, in units of its scale


class ScalePrior(NamedTuple):
    """The prior of log xi.

    Attributes:
        kind: One of ``SCALE_PRIORS``.
        shape: a of the Gamma prior.
        rate: b of the Gamma prior.
        scale: s of the others.
    """

    kind: str = "gamma"
    shape: float = 1.0
    rate: float = 0.01
    scale: float = 1.0

    def check(self) -> ScalePrior:
        """Refuse an unknown kind of prior.

        Returns:
            The prior itself.

        Raises:
            ValueError: The kind is unknown.
        """
        if self.kind not in SCALE_PRIORS:
            raise ValueError(f"expected one of {', '.join(SCALE_PRIORS)} as prior, got {self.kind!r}")
        return self

    def log_density(self, log_xi: Array) -> Array:
        """The log-density of log xi, up to a constant."""
        if self.kind == "gamma":
            return gamma_log_density(log_xi, self.shape, self.rate)
        if self.kind == "half_normal":
            return -0.5 * jnp.exp(-log_xi) / self.scale**2 - 0.5 * log_xi
        return -jnp.logaddexp(0.0, -log_xi - 2 * math.log(self.scale)) - 0.5 * log_xi

    def draw(self, key: Array, n: int, wide: bool = False) -> Array:
        """n x 1 draws of xi.

        Args:
            key: The key of the draws.
            n: How many.
            wide: Whether weights are to have a standard deviation of about 10 instead, as in the code of the DSVGD
                authors (a Gamma prior with the rate 1 / b; another prior with ten times the scale).
        """
        if self.kind == "gamma":
            return jnp.maximum(gamma_draws(key, self.shape, n) / (1 / self.rate if wide else self.rate), 1e-6)
        if self.kind == "half_normal":
            sigma = jnp.abs(jax.random.normal(key, (n, 1)))
        else:
            sigma = jnp.tan(0.5 * math.pi * jax.random.uniform(key, (n, 1)))
        return (self.scale * (10.0 if wide else 1.0) * jnp.clip(sigma, LEAST, MOST)) ** -2.0
