"""w given h for many h at once, where the prior has one precision for all of w.

Prior times a Gaussian site has w | h ~ N(mu, P^-1) with P = Lambda_ww + s(h) I (``collapse``). The eigenvectors V of
Lambda_ww = V diag(lambda) V' are those of P for every h, so

    P = V diag(lambda + s) V',   mu = V diag(lambda + s)^-1 V' (eta_w - Lambda_wh h),

and one decomposition serves all h: a point costs d^2 operations in place of the d^3 of a factorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.inference.collapse import parts_of, prior_given
from fedstein.inference.natural import GaussianSite
from fedstein.models.base import Model, cut

ROUNDING = 1e-12  # eigenvalues below this share of the largest are zero but for rounding
NO_PULL = 1e-6  # the same for pulls along directions without curvature; a larger one is real


class Conditionals(NamedTuple):
    """w | h for n values of h.

    Attributes:
        means: n x dim(w).
        curvatures: n x dim(w): the eigenvalues of P.
        axes: dim(w) x dim(w): its eigenvectors, in columns.
        of_site: n values of (eta_w - Lambda_wh h) . w - w' Lambda_ww w / 2 at the means.
    """

    means: np.ndarray
    curvatures: np.ndarray
    axes: np.ndarray
    of_site: np.ndarray

    @property
    def log_dets(self) -> np.ndarray:
        """log |P|."""
        found: np.ndarray = np.log(self.curvatures).sum(axis=1)
        return found

    def covariance(self, shares: np.ndarray) -> np.ndarray:
        """The average of the covariances with the weights ``shares``, dim(w) x dim(w)."""
        found: np.ndarray = (self.axes * (shares @ (1 / self.curvatures))) @ self.axes.T
        return found

    def log_densities(self, given: np.ndarray, widening: float = 1.0) -> np.ndarray:
        """The log-density of w given h at n x dim(w) points, up to a constant; sds are ``widening`` times larger."""
        standard = ((given - self.means) @ self.axes) ** 2 * self.curvatures
        found: np.ndarray = 0.5 * self.log_dets - 0.5 * standard.sum(axis=1) / widening**2
        return found


def conditionals(model: Model, total: GaussianSite, moved: np.ndarray) -> Conditionals | None:
    """Compute w | h.

    Args:
        model: A model whose prior is Gaussian in w given h.
        total: The sum of the sites.
        moved: n x dim(h) values of h.

    Returns:
        The Gaussians; None if the prior has a precision for each entry of w, or if the site is not finite.
    """
    given, others = parts_of(model)
    scales = _on_theta(_precisions, model, np.zeros((len(moved), len(given))), moved)
    precision = np.asarray(total.precision, np.float64)
    if scales.shape[1] != 1 or not np.isfinite(precision).all():
        return None
    values, axes = np.linalg.eigh(precision[np.ix_(given, given)])
    known = values > ROUNDING * max(float(values.max(initial=0.0)), 0.0)
    values = np.where(known, values, 0.0)
    pulls = (np.asarray(total.eta, np.float64)[given] - moved @ precision[np.ix_(others, given)]) @ axes
    rounding = ~known & (np.abs(pulls) <= NO_PULL * np.abs(pulls).max(axis=1, keepdims=True, initial=0.0))
    pulls = np.where(rounding, 0.0, pulls)  # a flat prior would amplify it
    curvatures = values + scales
    along = pulls / curvatures
    of_site = np.sum(along * (pulls - 0.5 * values * along), axis=1)
    return Conditionals(along @ axes.T, curvatures, axes, of_site)


def log_integrals(model: Model, total: GaussianSite, moved: np.ndarray, found: Conditionals) -> np.ndarray:
    """log of the integral over w of prior times site, at n values of h, up to a constant.

    Args:
        model: The model.
        total: The sum of the sites.
        moved: n x dim(h).
        found: Their ``conditionals``.

    Returns:
        n numbers.
    """
    others = parts_of(model).moved
    eta, precision = (np.asarray(part, np.float64) for part in total)
    own = moved @ eta[others] - 0.5 * np.einsum("ni,ij,nj->n", moved, precision[np.ix_(others, others)], moved)
    return _on_theta(_log_prior, model, found.means, moved) + found.of_site + own - 0.5 * found.log_dets


def joined(model: Model, given: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """theta from w and h, n x d."""
    parts = parts_of(model)
    theta = np.zeros((len(moved), model.dim))
    theta[:, parts.given], theta[:, parts.moved] = given, moved
    return theta


def _on_theta(
    function: Callable[[Model, Array], Array], model: Model, given: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """A function of n x d parameters, evaluated in float64."""
    with jax.enable_x64(True):
        return np.asarray(function(model, jnp.asarray(joined(model, given, moved))))


@partial(jax.jit, static_argnums=0)
def _precisions(model: Model, theta: Array) -> Array:
    form = prior_given(model)
    assert form is not None
    return form.precision(cut(theta, model.widths))


@partial(jax.jit, static_argnums=0)
def _log_prior(model: Model, theta: Array) -> Array:
    return model.log_prior(cut(theta, model.widths))
