"""Mean and covariance of p0(theta) exp(eta . theta - theta' Lambda theta / 2) by quadrature over one number.

If one block w is Gaussian given a single further parameter h (log xi of the regressions), w is integrated out exactly
(``fedstein.inference.collapse`` has the formulas), and a sum over a grid of h gives the moments. No mode has to be
found, so the hierarchical prior's degenerate mode does no harm.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.inference.collapse import parts_of, prior_given
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.models.base import Model, cut

GRID = np.linspace(-12.0, 14.0, 131)
LEAST = 1e-12  # variances below this share of the largest one are rounding errors


def has_grid(model: Model) -> bool:
    """Whether the prior has the form that the quadrature needs."""
    return len(parts_of(model).moved) == 1


def grid_gaussian(model: Model, eta: np.ndarray, precision: np.ndarray) -> SiteGaussian:
    """The Gaussian with the posterior's mean and covariance.

    Args:
        model: A model for which ``has_grid`` is true.
        eta: d; nothing for h.
        precision: d x d, positive semi-definite; nothing for h.

    Returns:
        The Gaussian, in float64.
    """
    given, moved = parts_of(model)
    curvature, pull, scales = precision[np.ix_(given, given)], eta[given], _scales(model)
    points = np.zeros((len(GRID), model.dim))
    points[:, moved] = GRID[:, None]
    if scales.shape[1] == 1:  # one precision for all: the axes of Lambda are those of every P
        values, axes = np.linalg.eigh(curvature)
        total = np.maximum(values, 0.0) + scales
        means, log_det = ((pull @ axes) / total) @ axes.T, np.log(total).sum(axis=1)
    else:
        roots = np.linalg.cholesky(curvature + np.eye(len(given)) * scales[:, None, :])
        inverses = np.linalg.inv(roots)
        means = np.einsum("hji,hj->hi", inverses, inverses @ pull)
        log_det = 2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    points[:, given] = means
    with jax.enable_x64(True):
        prior = np.asarray(model.log_prior(cut(jnp.asarray(points), model.widths)))
    log_weights = prior + means @ pull - 0.5 * np.einsum("hi,ij,hj->h", means, curvature, means) - 0.5 * log_det
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ points
    away = points - mean
    covariance = away.T @ (weights[:, None] * away)
    if scales.shape[1] == 1:
        spread = (axes * (weights @ (1 / total))) @ axes.T
    else:
        spread = np.einsum("h,hki,hkj->ij", weights, inverses, inverses, optimize=True)
    covariance[np.ix_(given, given)] += spread
    values, axes = np.linalg.eigh(0.5 * (covariance + covariance.T))
    values = np.maximum(values, LEAST * values[-1])
    return SiteGaussian(mean, (axes / values) @ axes.T)


@lru_cache(maxsize=16)
def _scales(model: Model) -> np.ndarray:
    """The prior's precisions of w at every h of the grid: grid x 1 or grid x width."""
    form, moved = prior_given(model), parts_of(model).moved
    assert form is not None
    points = np.zeros((len(GRID), model.dim))
    points[:, moved] = GRID[:, None]
    with jax.enable_x64(True):
        return np.asarray(form.precision(cut(jnp.asarray(points), model.widths)), np.float64)
