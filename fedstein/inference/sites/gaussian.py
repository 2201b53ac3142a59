"""The site Gaussian: the product of the prior and full curvature sites, as a posterior of its own.

Sites that add up give log p0(theta) + eta . theta - theta' Lambda theta / 2 with eta and Lambda summed over clients.
For a Gaussian prior with precision P0 and mean zero that is N((P0 + Lambda)^-1 eta, (P0 + Lambda)^-1). For any other
prior (logistic regression's is hierarchical: theta = [w, log xi]) this is its Laplace form: the mode, and the curvature
there. Particles show where the posterior is. With fewer particles than parameters they cannot show how wide it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.errors import InputError
from fedstein.models.base import Model, cut
from fedstein.seeds import GAUSSIAN, stream

ITERATIONS = 200
DECREMENT = 1e-18  # half the squared length of a Newton step in posterior sds: the mode to 1e-9 of them
DRAWS = 200  # unless the user says otherwise

Prior = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]  # theta -> log p0, its gradient and Hessian


@dataclass(frozen=True)
class SiteGaussian:
    """N(mean, precision^-1), in float64."""

    mean: np.ndarray  # d
    precision: np.ndarray  # d x d

    @cached_property
    def covariance(self) -> np.ndarray:
        return np.linalg.inv(self.precision)

    @cached_property
    def sd(self) -> np.ndarray:
        """The standard deviation of each parameter."""
        return np.sqrt(np.diag(self.covariance))

    def draws(self, count: int = DRAWS, seed: int = 0) -> np.ndarray:
        """``count`` x d draws; the same seed gives the same."""
        if count < 1:
            raise InputError(f"expected at least one draw, got {count}")
        with jax.enable_x64(True):
            standard = np.asarray(jax.random.normal(stream(seed, GAUSSIAN), (count, len(self.mean)), jnp.float64))
        root = np.linalg.cholesky(self.precision)
        return self.mean + np.linalg.solve(root.T, standard.T).T


def site_gaussian(model: Model, sums: Mapping[str, Any], start: np.ndarray) -> SiteGaussian:
    """From the server's sums ``eta`` (d) and ``precision`` (d x d); ``start`` is where the search for the mode begins.

    A prior with several modes has the one uphill of the start, so start at the particles' mean.
    """
    eta, summed = (np.asarray(sums[name], np.float64) for name in ("eta", "precision"))
    mean, precision = newton(autodiff_prior(model), eta, 0.5 * (summed + summed.T), np.asarray(start, np.float64))
    try:
        np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(precision)[0])
        raise InputError(
            f"the site Gaussian has no width: prior plus sites have a precision that is not positive definite (least "
            f"eigenvalue {least:.3g}); let more clients train, or use a proper prior"
        ) from None
    return SiteGaussian(mean, precision)


def autodiff_prior(model: Model) -> Prior:
    """log p0 of one particle with two derivatives, in float64 whatever the precision of the run."""

    def log_prior(theta: Any) -> Any:
        return model.log_prior(cut(theta[None, :], model.widths))[0]

    compiled = jax.jit(lambda theta: (log_prior(theta), jax.grad(log_prior)(theta), jax.hessian(log_prior)(theta)))

    def derivatives(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            value, gradient, hessian = compiled(jnp.asarray(theta, jnp.float64))
            return float(value), np.asarray(gradient, np.float64), np.asarray(hessian, np.float64)

    return derivatives


def newton(prior: Prior, eta: np.ndarray, summed: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode of log p0 + eta . theta - theta' Lambda theta / 2 and minus the Hessian there.

    Damped as Levenberg and Marquardt do: a step that does not climb is shortened and bent towards the gradient.
    """

    def at(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, hessian = prior(theta)
        pulled = summed @ theta
        return value + (eta - 0.5 * pulled) @ theta, gradient + eta - pulled, summed - hessian

    value, gradient, precision = at(theta)
    damping = 0.0
    for _ in range(ITERATIONS):
        if not (np.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(precision).all()):
            break
        ridge = damping * np.maximum(np.abs(np.diag(precision)), 1e-12)
        try:
            root = np.linalg.cholesky(precision + np.diag(ridge))
        except np.linalg.LinAlgError:
            if not gradient.any():
                return theta, precision  # a stationary point without curvature, which the caller refuses
            damping = max(10 * damping, 1e-3)
            continue
        step = np.linalg.solve(root.T, np.linalg.solve(root, gradient))
        tried = at(theta + step)
        small = 0.5 * float(step @ gradient) <= DECREMENT
        if tried[0] >= value or small:
            theta, (value, gradient, precision) = theta + step, tried
            damping = damping / 10 if damping > 1e-6 else 0.0
            if small:
                return theta, precision
        elif abs(tried[0] - value) <= 1e-13 * abs(value):  # rounding is all that is left to climb
            return theta, precision
        else:
            damping = max(10 * damping, 1e-3)
    raise InputError(
        f"the site Gaussian has no mode that {ITERATIONS} Newton steps could find: the prior or the sums are not "
        "finite, or the density has no maximum; let more clients train, or use a proper prior"
    )
