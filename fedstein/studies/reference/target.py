"""The true global posterior p0 * prod_k p_k of all rows in float64: density, score and Laplace approximation.

There are two parametrisations. *Centred* is theta itself. *Non-centred* is for priors under which a block w is Gaussian
given the rest h (``Model.gaussian_given``): its coordinates are (u, h) with w = u / sqrt(precision(h)), and

    log p(u, h) = log p(w, h) - sum log precision(h) / 2.

With few rows it avoids the funnel of w and h; with many rows it would make one.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models import Blocks, Model, join

STEPS = 200  # Newton's method needs about ten
CLOSE = 1e-9  # in nats: Newton stops when the predicted gain of a step is smaller
BLOCK = 64  # the number of points in one call of the score, which bounds the memory
INITS = 64  # the number of the model's own initial particles to begin at, if the density at zero is not finite


class Pooled(NamedTuple):
    """All clients' rows (as ``prepare`` returns them), the model, and the temperature: p_k = exp(-L_k / alpha).

    The likelihood of most models is a sum over rows, so ``x`` is rows x inputs. If it is that of a whole client
    (``Model.whole_shard``), ``x`` is clients x rows x inputs, ``y`` is clients x rows, and clients with fewer rows than
    others are filled up with rows of weight zero.
    """

    model: Model
    x: np.ndarray
    y: np.ndarray
    temperature: float
    weights: np.ndarray | None = None  # like y: 1 for a row, 0 for what fills up; None: all are rows

    @property
    def rows(self) -> int:
        """The number of rows of all clients."""
        return self.y.size if self.weights is None else int(self.weights.sum())

    def arrays(self) -> tuple[Array, Array, Array]:
        """x, y and the weights of the rows divided by the temperature, for JAX; call it with 64 bits enabled."""
        weights = np.ones(self.y.shape) if self.weights is None else self.weights
        x, y = jnp.asarray(self.x, jnp.float64), jnp.asarray(self.y)
        return x, y, jnp.asarray(weights / self.temperature, jnp.float64)


def stack_clients(clients: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay the rows of clients side by side, for models whose likelihood is that of a whole client.

    Args:
        clients: The x and y of each client.

    Returns:
        x (clients x rows x inputs), y and weights (clients x rows).
    """
    longest = max(len(y) for _, y in clients)

    def filled(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, longest - len(array))] + [(0, 0)] * (array.ndim - 1), mode="edge")

    weights = np.stack([np.arange(longest) < len(y) for _, y in clients]).astype(np.float64)
    return np.stack([filled(x) for x, _ in clients]), np.stack([filled(y) for _, y in clients]), weights


class Laplace(NamedTuple):
    """The Gaussian at the mode: theta = mode + root z with standard normal z."""

    mode: np.ndarray  # d
    root: np.ndarray  # d x d

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of each parameter."""
        return np.sqrt(np.sum(self.root**2, axis=1))


def log_likelihood(model: Model, blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
    """Compute the log-likelihood of all rows, or the sum over clients if these are side by side; N values."""
    if x.ndim == 2:
        return model.log_likelihood(blocks, x, y, weights)
    return jnp.sum(jax.lax.map(lambda rows: model.log_likelihood(blocks, *rows), (x, y, weights)), axis=0)


def log_density(model: Model, theta: Array, x: Array, y: Array, weights: Array) -> Array:
    """Compute log p0 + (1/alpha) sum_i log p(y_i | x_i, theta), up to a constant.

    Args:
        model: The model.
        theta: N x d points.
        x: The rows.
        y: The labels.
        weights: The weights of the rows, divided by the temperature alpha.

    Returns:
        N values.
    """
    blocks = model.split(theta)
    return model.log_prior(blocks) + log_likelihood(model, blocks, x, y, weights)


def to_theta(model: Model, centred: bool, point: Array) -> tuple[Array, Array]:
    """Turn coordinates into theta, d each, with the log-determinant of the map."""
    form = model.gaussian_given
    if centred or form is None:
        return point, jnp.zeros(())
    blocks = list(model.split(point[None]))
    precision = jnp.broadcast_to(form.precision(tuple(blocks)), blocks[form.block].shape)
    blocks[form.block] = blocks[form.block] / jnp.sqrt(precision)
    return join(tuple(blocks))[0], -0.5 * jnp.sum(jnp.log(precision))


def log_density_at(model: Model, centred: bool, point: Array, x: Array, y: Array, weights: Array) -> Array:
    """Compute the log-density of one point in the coordinates of a parametrisation."""
    theta, log_det = to_theta(model, centred, point)
    return log_density(model, theta[None], x, y, weights)[0] + log_det


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
        arrays = target.arrays()
        parts = [np.asarray(_score(target.model, theta[i : i + BLOCK], *arrays)) for i in range(0, len(theta), BLOCK)]
    return np.concatenate(parts)


@partial(jax.jit, static_argnums=0)
def _score(model: Model, theta: Array, x: Array, y: Array, weights: Array) -> Array:
    return jax.grad(lambda points: jnp.sum(log_density(model, points, x, y, weights)))(theta)


def laplace(target: Pooled, centred: bool = True, start: np.ndarray | None = None) -> Laplace:
    """Find the mode by Newton's method with step halving.

    The density need not be log-concave (it is not in [w, log xi]), so the absolute values of the eigenvalues of the
    Hessian are used.

    Args:
        target: The posterior.
        centred: The parametrisation, whose coordinates mode and root are in.
        start: Where to begin; by default at zero, or where the model's particles begin if the density at zero is not
            finite.

    Returns:
        The Laplace approximation.

    Raises:
        InputError: The density is not finite anywhere where the model's particles begin.
    """
    with jax.enable_x64(True):
        arrays = target.arrays()
        derivatives = partial(_derivatives, target.model, centred)
        value = partial(_value, target.model, centred)
        mode = first_point(target, centred) if start is None else np.asarray(start, np.float64)
        for _ in range(STEPS):
            height, gradient, hessian = (np.asarray(part) for part in derivatives(mode, *arrays))
            if not np.isfinite(hessian).all():
                raise InputError(f"the log-density of model {target.model.name!r} has no finite Hessian on the way up")
            curvatures, axes = np.linalg.eigh(-hessian)
            curvatures = np.maximum(np.abs(curvatures), 1e-8 * np.abs(curvatures).max())
            step = axes @ ((axes.T @ gradient) / curvatures)
            if gradient @ step < CLOSE:
                break
            length = 1.0
            while length > 1e-6 and not float(value(mode + length * step, *arrays)) > height:
                length /= 2
            mode = mode + length * step
    return Laplace(mode, axes / np.sqrt(curvatures))


def first_point(target: Pooled, centred: bool) -> np.ndarray:
    """Return zero, or the best of the model's initial particles if the log-density or its slope at zero is not finite.

    Raises:
        InputError: They are not finite there either.
    """
    arrays = target.arrays()
    inits = np.asarray(target.model.init(jax.random.key(0), INITS), np.float64)
    best, height = None, -np.inf
    for point in (np.zeros(target.model.dim), *inits):
        found, gradient, hessian = (np.asarray(part) for part in _derivatives(target.model, centred, point, *arrays))
        if np.isfinite(found) and np.isfinite(gradient).all() and np.isfinite(hessian).all() and found > height:
            best, height = point, float(found)
            if not point.any():
                break
    if best is None:
        raise InputError(
            f"the log-density of model {target.model.name!r} and its derivatives are not finite at zero nor at "
            f"{INITS} of the model's initial particles; check its functions with fedstein.models.check_model"
        )
    return best


@partial(jax.jit, static_argnums=(0, 1))
def _derivatives(
    model: Model, centred: bool, point: Array, x: Array, y: Array, weights: Array
) -> tuple[Array, Array, Array]:
    def at(point: Array) -> Array:
        return log_density_at(model, centred, point, x, y, weights)

    height, gradient = jax.value_and_grad(at)(point)
    return height, gradient, jax.hessian(at)(point)


@partial(jax.jit, static_argnums=(0, 1))
def _value(model: Model, centred: bool, point: Array, x: Array, y: Array, weights: Array) -> Array:
    return log_density_at(model, centred, point, x, y, weights)
