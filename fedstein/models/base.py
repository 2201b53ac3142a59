"""What a model is: a prior and a likelihood, batched over particles. It knows no clients.

Particles are N x d; inside, a model works on its *blocks*, the tuple of N x . arrays that ``split`` cuts theta into
(one for each weight matrix, say), so that every matrix product reads contiguous memory. A model that gives a
log-prior and a log-likelihood gets its scores by one reverse pass over all particles together; particles do not
interact in them, so the gradient of the sum is the stack of the gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Blocks = tuple[Array, ...]


class Model(NamedTuple):
    """A prior p0 and a likelihood, as pure functions with their settings closed over."""

    name: str
    task: str  # "classification" | "regression"
    widths: tuple[int, ...]  # the widths of the blocks; d is their sum
    init: Callable[[Array, int], Array]  # key, N -> N x d initial particles
    log_prior: Callable[[Blocks], Array]  # -> N
    log_likelihood: Callable[[Blocks, Array, Array, Array], Array]  # blocks, x, y, row weights -> N, summed over rows
    predict: Callable[
        [Blocks, Array], Array
    ]  # -> rows x classes log-probabilities, or rows x 2N (means, log-precisions)
    # offset, origin, x, y, row weights: the log-likelihood at their sum, where that need not come into being
    log_likelihood_around: Callable[[Blocks, Blocks, Array, Array, Array], Array] | None = None
    prepare: Callable[[np.ndarray], np.ndarray] = lambda x: x  # rows as a dataset has them -> rows as the model wants
    kde_dim: int = 0  # the d of the reference density's normaliser; 0: all of theta
    prior_curvature: float | None = None  # the largest curvature of -log p0; None: it has no bound
    linear_prior_score: float | None = None  # c, where the score of p0 is c * theta
    # Closed forms of the Gauss-Newton matrix, where there are any (``models.fisher``):
    # blocks, x, row weights, key, label samples (0: the expectation) -> its diagonal at every particle, as blocks
    diagonal_curvature: Callable[[Blocks, Array, Array, Array, int], Blocks] | None = None
    full_curvature: Callable[[Blocks, Array, Array], Array] | None = None  # ... -> its mean over particles, d x d
    input_block: int | None = None  # the block that multiplies the inputs, outputs x inputs, with an isotropic prior
    features: int = 0
    classes: int = 0

    @property
    def dim(self) -> int:
        return sum(self.widths)

    def split(self, particles: Array) -> Blocks:
        """N x d -> blocks."""
        return split(particles, self.widths)

    def prior_score(self, blocks: Blocks) -> Blocks:
        """Gradient of log p0 at every particle."""
        return jax.grad(lambda b: jnp.sum(self.log_prior(b)))(blocks)

    def likelihood_score(self, blocks: Blocks, x: Array, y: Array, weights: Array) -> Blocks:
        """Gradient of sum_i weights_i log p(y_i | x_i, theta) at every particle."""
        return jax.grad(lambda b: jnp.sum(self.log_likelihood(b, x, y, weights)))(blocks)

    def likelihood_score_around(self, offset: Blocks, origin: Blocks, x: Array, y: Array, weights: Array) -> Blocks:
        """``likelihood_score`` at offset + origin, the origin being the same for every particle."""
        around = self.log_likelihood_around
        if around is None:
            return self.likelihood_score(jax.tree.map(jnp.add, offset, origin), x, y, weights)
        return jax.grad(lambda b: jnp.sum(around(b, origin, x, y, weights)))(offset)


def split(particles: Array, widths: tuple[int, ...]) -> Blocks:
    """Cut N x d into blocks of the given widths."""
    # The barrier makes the blocks come into being, instead of being sliced anew inside every product.
    return jax.lax.optimization_barrier(cut(particles, widths))


def cut(particles: Array, widths: tuple[int, ...]) -> Blocks:
    """``split`` for blocks that are read once."""
    edges = np.cumsum((0, *widths))
    return tuple(particles[:, a:b] for a, b in itertools.pairwise(edges))


def join(blocks: Blocks) -> Array:
    """Blocks back to N x d."""
    return jnp.concatenate(blocks, axis=1)


def gamma_log_density(log_value: Array, shape: float, rate: float) -> Array:
    """Log-density of log(g), g ~ Gamma(shape, rate), up to a constant: shape * log g - rate * g (Jacobian included)."""
    return shape * log_value - rate * jnp.exp(log_value)


def known_start(start: str, starts: tuple[str, ...]) -> None:
    if start not in starts:
        raise ValueError(f"start must be one of {', '.join(starts)}, got {start!r}")


def gamma_draws(key: Array, shape: float, n: int) -> Array:
    """N x 1 draws from Gamma(shape, 1). Shape 1 is the exponential, which compiles in a fraction of the time."""
    return jax.random.exponential(key, (n, 1)) if shape == 1 else jax.random.gamma(key, shape, (n, 1))


def log_mean_exp(log_values: Array, axis: int = 0) -> Array:
    """log of the mean of exp: probabilities are averaged over particles, in log space."""
    return jax.nn.logsumexp(log_values, axis=axis) - jnp.log(log_values.shape[axis])
