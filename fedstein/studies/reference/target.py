"""The true global posterior p0 * prod_k p_k of all rows in float64: density, score and Laplace approximation."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.models import Model, join

STEPS = 200  # Newton's method needs about ten
CLOSE = 1e-9  # in nats: Newton stops when the predicted gain of a step is smaller
BLOCK = 64  # the number of points in one call of the score, which bounds the memory


class Pooled(NamedTuple):
    """All clients' rows (as ``prepare`` returns them), the model, and the temperature: p_k = exp(-L_k / alpha)."""

    model: Model
    x: np.ndarray
    y: np.ndarray
    temperature: float


class Laplace(NamedTuple):
    """The Gaussian at the mode: theta = mode + root z with standard normal z."""

    mode: np.ndarray  # d
    root: np.ndarray  # d x d

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of each parameter."""
        return np.sqrt(np.sum(self.root**2, axis=1))


def log_density(model: Model, temperature: Array | float, theta: Array, x: Array, y: Array) -> Array:
    """Compute log p0 + (1/alpha) sum_i log p(y_i | x_i, theta), up to a constant.

    Args:
        model: The model.
        temperature: The temperature alpha.
        theta: N x d points.
        x: The rows.
        y: The labels.

    Returns:
        N values.
    """
    blocks = model.split(theta)
    return model.log_prior(blocks) + model.log_likelihood(blocks, x, y, jnp.full(x.shape[0], 1 / temperature, x.dtype))


def score(target: Pooled, theta: np.ndarray) -> np.ndarray:
    """Compute the exact global score: the gradient of the log-density with all rows.

    Args:
        target: The posterior.
        theta: N x d points.

    Returns:
        N x d, float64.
    """
    theta = np.asarray(theta, np.float64)
    with jax.enable_x64(True):
        x, y = jnp.asarray(target.x, jnp.float64), jnp.asarray(target.y)
        parts = [
            np.asarray(_score(target.model, target.temperature, theta[i : i + BLOCK], x, y))
            for i in range(0, len(theta), BLOCK)
        ]
    return np.concatenate(parts)


@partial(jax.jit, static_argnums=0)
def _score(model: Model, temperature: Array | float, theta: Array, x: Array, y: Array) -> Array:
    blocks = model.split(theta)
    rows = jnp.full(x.shape[0], 1 / temperature, x.dtype)
    prior, likelihood = model.prior_score(blocks), model.likelihood_score(blocks, x, y, rows)
    return join(jax.tree.map(jnp.add, prior, likelihood))


def laplace(target: Pooled) -> Laplace:
    """Find the mode by Newton's method, starting from zero, with step halving.

    The density need not be log-concave in [w, log xi], so the absolute values of the eigenvalues of the Hessian are
    used.

    Args:
        target: The posterior.

    Returns:
        The Laplace approximation.
    """
    with jax.enable_x64(True):
        x, y = jnp.asarray(target.x, jnp.float64), jnp.asarray(target.y)
        derivatives = partial(_derivatives, target.model, target.temperature)
        value = partial(_value, target.model, target.temperature)
        mode = np.zeros(target.model.dim)
        for _ in range(STEPS):
            height, gradient, hessian = (np.asarray(part) for part in derivatives(mode, x, y))
            curvatures, axes = np.linalg.eigh(-hessian)
            curvatures = np.maximum(np.abs(curvatures), 1e-8 * np.abs(curvatures).max())
            step = axes @ ((axes.T @ gradient) / curvatures)
            if gradient @ step < CLOSE:
                break
            length = 1.0
            while length > 1e-6 and not float(value(mode + length * step, x, y)) > height:
                length /= 2
            mode = mode + length * step
    return Laplace(mode, axes / np.sqrt(curvatures))


@partial(jax.jit, static_argnums=0)
def _derivatives(
    model: Model, temperature: Array | float, theta: Array, x: Array, y: Array
) -> tuple[Array, Array, Array]:
    def at(point: Array) -> Array:
        return log_density(model, temperature, point[None], x, y)[0]

    height, gradient = jax.value_and_grad(at)(theta)
    return height, gradient, jax.hessian(at)(theta)


@partial(jax.jit, static_argnums=0)
def _value(model: Model, temperature: Array | float, theta: Array, x: Array, y: Array) -> Array:
    return log_density(model, temperature, theta[None], x, y)[0]
