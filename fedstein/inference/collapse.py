"""p0(theta) exp(eta . theta - theta' Lambda theta / 2): how it is sampled, which the form of the prior decides.

**Directly.** NUTS moves theta itself, in coordinates in which the Laplace approximation is a standard normal.

**Collapsed**, if the prior of one block w is Gaussian given the rest h (``Model.gaussian_given``). As the sites are
Gaussian too, so is w given h,

    w | h ~ N(mu, P^-1),   P = Lambda_ww + diag(precision(h)),   mu = P^-1 (eta_w - Lambda_wh h),

and the integral over w is known: log p(h) = log p(mu, h) - log |P| / 2. NUTS moves h alone, which for logistic
regression is one number, and w is drawn exactly. There is no funnel left, so the question whether w should be centred
does not arise, and the moments of theta are averages of the conditional ones (Rao and Blackwell), which are far less
noisy than those of the draws. Without any h (a Gaussian prior) every draw is exact and independent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.models.base import Blocks, GaussianGiven, Model, cut


class Sums(NamedTuple):
    """The natural parameters summed over clients: d, and d x d (symmetric)."""

    eta: Array
    precision: Array


def prior_given(model: Model) -> GaussianGiven | None:
    """Return the Gaussian form of the prior. A prior that is Gaussian as a whole is recognised by its linear score."""
    if model.gaussian_given is None and model.linear_prior_score is not None and len(model.widths) == 1:
        scale = -model.linear_prior_score
        return GaussianGiven(0, lambda blocks: jnp.full((blocks[0].shape[0], 1), scale, blocks[0].dtype))
    return model.gaussian_given


def log_target(model: Model, sums: Sums, theta: Array) -> Array:
    """log p0(theta) + eta . theta - theta' Lambda theta / 2 for one theta."""
    prior = model.log_prior(cut(theta[None, :], model.widths))[0]
    return prior + sums.eta @ theta - 0.5 * theta @ (sums.precision @ theta)


class Parts(NamedTuple):
    """The entries of theta that are drawn exactly (w) and those that NUTS moves (h)."""

    given: np.ndarray
    moved: np.ndarray


def parts_of(model: Model) -> Parts:
    """The entries of the block that is Gaussian given the others, and the rest; all is moved if there is none."""
    form = prior_given(model)
    if form is None:
        return Parts(np.arange(0), np.arange(model.dim))
    edges = np.cumsum((0, *model.widths))
    given = np.arange(edges[form.block], edges[form.block + 1])
    return Parts(given, np.setdiff1d(np.arange(model.dim), given))


class Prepared(NamedTuple):
    """The sums, and the eigenvalues and axes of Lambda_ww, which one precision for all of w leaves as they are."""

    sums: Sums
    values: Array
    axes: Array


def prepared(model: Model, eta: Any, precision: Any) -> Prepared:
    """The sums as float64 arrays of JAX; call it with 64 bits enabled."""
    precision = np.asarray(precision, np.float64)
    precision = 0.5 * (precision + precision.T)
    given = parts_of(model).given
    values, axes = np.linalg.eigh(precision[np.ix_(given, given)])
    sums = Sums(jnp.asarray(eta, jnp.float64), jnp.asarray(precision))
    return Prepared(sums, jnp.asarray(np.maximum(values, 0.0)), jnp.asarray(axes))


class Conditional(NamedTuple):
    """w | h ~ N(mean, root root')."""

    mean: Array
    root: Array  # width x width; times a standard normal vector it is a draw
    log_det: Array  # log |P|


def conditional(model: Model, ready: Prepared, moved: Array) -> Conditional:
    """The Gaussian of the block given the others.

    Args:
        model: The model; its prior must have a block that is Gaussian given the others.
        ready: The sums.
        moved: h, the values of the others.

    Returns:
        Its mean, a root of its covariance, and log |P|.
    """
    form, parts = prior_given(model), parts_of(model)
    assert form is not None
    blocks: Blocks = cut(jnp.zeros((1, model.dim)).at[0, parts.moved].set(moved), model.widths)
    scales = form.precision(blocks)[0]
    cross = ready.sums.precision[np.ix_(parts.given, parts.moved)]
    pull = ready.sums.eta[parts.given] - cross @ moved
    if scales.shape == (1,):  # one precision for all: the axes of Lambda_ww are those of P
        curvature = ready.values + scales[0]
        mean = ready.axes @ ((ready.axes.T @ pull) / curvature)
        return Conditional(mean, ready.axes / jnp.sqrt(curvature), jnp.sum(jnp.log(curvature)))
    precision = ready.sums.precision[np.ix_(parts.given, parts.given)] + jnp.diag(scales)
    lower = jnp.linalg.cholesky(precision)
    mean = jax.scipy.linalg.cho_solve((lower, True), pull)
    root = jax.scipy.linalg.solve_triangular(lower, jnp.eye(len(parts.given)), lower=True).T
    return Conditional(mean, root, 2 * jnp.sum(jnp.log(jnp.diag(lower))))


def together(model: Model, given: Array, moved: Array) -> Array:
    """theta from w and h."""
    parts = parts_of(model)
    theta = jnp.zeros(model.dim, moved.dtype)
    return theta.at[parts.given].set(given).at[parts.moved].set(moved)


def log_density(model: Model, ready: Prepared, moved: Array) -> Array:
    """The log-density of what NUTS moves: of theta, or of h with w integrated out; up to a constant."""
    if prior_given(model) is None:
        return log_target(model, ready.sums, moved)
    gauss = conditional(model, ready, moved)
    return log_target(model, ready.sums, together(model, gauss.mean, moved)) - 0.5 * gauss.log_det


def complete(model: Model, ready: Prepared, moved: Array, standard: Array) -> tuple[Array, Array, Array]:
    """One theta for every h, and the moments that the exact part leaves to the average.

    Args:
        model: The model.
        ready: The sums.
        moved: n x dim(h).
        standard: n x dim(w) standard normal numbers.

    Returns:
        n x d draws, the n x d conditional means, and the average of the conditional covariances, d x d.
    """
    parts = parts_of(model)
    if prior_given(model) is None:
        return moved, moved, jnp.zeros((model.dim, model.dim))

    def one(total: Array, entry: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        rest, noise = entry
        gauss = conditional(model, ready, rest)
        drawn = together(model, gauss.mean + gauss.root @ noise, rest)
        return total + gauss.root @ gauss.root.T, (drawn, together(model, gauss.mean, rest))

    width = len(parts.given)
    total, (draws, means) = jax.lax.scan(one, jnp.zeros((width, width)), (moved, standard))
    spread = jnp.zeros((model.dim, model.dim)).at[np.ix_(parts.given, parts.given)].set(total / moved.shape[0])
    return draws, means, spread
