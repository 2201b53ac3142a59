"""The mechanism of private releases: a sum of bounded row contributions, plus Gaussian noise.

Row i, whose inputs x_i include a 1 for the intercept, has the weight w_i = min(1, C^2 / |x_i|^2). The weight depends on
x_i alone, so scores still have mean zero at the true coefficients, whatever C is: outlying rows count less, and nothing
is biased. Two datasets are neighbours if one has one row more than the other. One row adds to

    gradient   sum_i w_i u_i (x) x_i,      |w_i u_i (x) x_i| = w_i |u_i| |x_i| <= U C,
    moments    sum_i w_i x_i x_i',         |w_i x_i x_i'|_F = w_i |x_i|^2 <= C^2,

because w_i |x_i| <= C and w_i |x_i|^2 <= C^2 in both cases of the minimum. u_i is the derivative of log p(y_i | f_i) by
the linear predictors f_i, |u_i| <= U: 1 for logistic, sqrt(2) for softmax, and the bound on counts for Poisson
regression. Those norms are the sensitivities. The symmetric matrix gets noise of standard deviation s on the diagonal
and s / sqrt(2) elsewhere: in the coordinates in which the Frobenius norm is the Euclidean one, noise s on each.

Linear regression needs no point: its gradient is linear in the coefficients, with the moments as slope. Clients release
the gradient at zero, where u_i = y_i, with targets clipped to the public bound B. With it they release q sum_i w_i
y_i^2, from which the server estimates the noise of the targets. One row adds (w y x, q w y^2), whose norm is at most C
B sqrt(1 + kappa^2) with q = kappa C/B.

With ``privacy.kind = "client"``, two datasets are neighbours if one has all rows of the client and the other has none.
An empty client releases noise around zero, so the sensitivity of a release is the largest norm that it can have. With R
= ``client_rows`` and M, g the sums above, a client releases

    moments    f M,                                    f = min(1, B_M / |M|_F),          B_M = R C^2 / 2,
    gradient   f g min(1, B_g / |f g|),                                                  B_g = R U C / 4.

f depends on the inputs alone, and the gradient has the same f, so that a client with many rows counts as one with fewer
rows and nothing is biased. The second factor of the gradient depends on the targets too: if it is below 1, the gradient
is too short. B_g is a quarter of the largest norm that R rows can give. They give it only if all residuals are as large
as possible and all rows point in the same direction. Moments reach R C^2 only if all rows are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fedstein.errors import InputError
from fedstein.models.base import Model
from fedstein.privacy.noise import add_noise
from fedstein.privacy.settings import PrivacySettings

GRADIENT, MOMENTS = "gradient", "moments"
CURVATURE = "curvature"  # networks release it in place of moments (``fedstein.privacy.row_gradients``)
KAPPA = 0.5  # the share of squares of targets in a release of linear regression


class Family(NamedTuple):
    """A canonical generalised linear model: u = target(y) - mean(f), with linear predictors f, rows x P.

    Attributes:
        predictors: P.
        bound: U, the largest norm of u.
        target: y -> rows x P.
        mean: f -> rows x P.
        information: f -> rows x P x P, the derivative of the mean.
        squares: kappa / B if the squares of targets are released too; 0 if they are not.
    """

    predictors: int
    bound: float
    target: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    information: Callable[[np.ndarray], np.ndarray]
    squares: float = 0.0

    @property
    def extra(self) -> int:
        """How many numbers are released with the gradient: 1 for the sum of squares, or 0."""
        return int(self.squares > 0)


def family_of(model: Model, settings: PrivacySettings) -> Family:
    """The form of the model's likelihood.

    Raises:
        InputError: The model has no such form, or a bound is missing.
    """
    from scipy.special import expit, softmax  # imported here: it would take a third of the time of importing Fedstein

    if model.name == "blr":
        return Family(1, 1.0, lambda y: y[:, None].astype(float), expit, lambda f: _variance(expit(f))[:, :, None])
    if model.name == "softmax":
        classes = model.classes
        return Family(
            classes,
            2**0.5,
            lambda y: np.eye(classes)[np.asarray(y, int)],
            lambda f: softmax(f, axis=1),
            lambda f: _spread(softmax(f, axis=1)),
        )
    if model.name == "poisson":
        if settings.largest_count is None:
            raise InputError(
                f"privacy.kind = {settings.kind!r} with model.kind = 'poisson' needs privacy.largest_count: a public "
                "bound at which counts are cut, because a count has none of its own; set it"
            )
        most = float(settings.largest_count)

        def rate(f: np.ndarray) -> np.ndarray:
            return np.exp(np.minimum(f, np.log(most)))

        return Family(
            1, most, lambda y: np.clip(y, 0, most)[:, None].astype(float), rate, lambda f: rate(f)[:, :, None]
        )
    if model.name == "linear":
        if settings.largest_target is None:
            raise InputError(
                f"privacy.kind = {settings.kind!r} with model.kind = 'linear' needs privacy.largest_target: a public "
                "bound at which targets are cut, because a target has none of its own; set it"
            )
        furthest = float(settings.largest_target)
        return Family(
            1,
            furthest * (1 + KAPPA**2) ** 0.5,
            lambda y: np.clip(y, -furthest, furthest)[:, None].astype(float),
            np.zeros_like,  # gradients are taken at zero, whatever the point
            lambda f: np.ones((*f.shape, 1)),
            KAPPA / furthest,
        )
    raise InputError(
        f"privacy.kind = {settings.kind!r} works with model.kind = {', '.join(map(repr, SUPPORTED))}, got "
        f"{model.name!r}: only for those it is known how much one row can change what a client sends; choose one of "
        "them, or set privacy.kind = 'none'"
    )


SUPPORTED = ("blr", "softmax", "poisson", "linear")
NETWORKS = ("bnn_classifier", "bnn_regressor", "custom")  # the gradients of their rows are clipped; record level only


def _variance(p: np.ndarray) -> np.ndarray:
    return p * (1 - p)


def _spread(p: np.ndarray) -> np.ndarray:
    return p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]


def row_weights(x: np.ndarray, clip: float) -> np.ndarray:
    """w_i = min(1, C^2 / |x_i|^2)."""
    squared = np.maximum((x * x).sum(axis=1), 1e-300)
    return np.minimum(1.0, clip**2 / squared)


def clipped_sums(
    family: Family, coefficients: np.ndarray, x: np.ndarray, y: np.ndarray, clip: float
) -> dict[str, np.ndarray]:
    """The sums over rows, before noise. They must not leave the client.

    Args:
        family: The likelihood.
        coefficients: The point at which the gradient is taken: predictors x inputs in row-major order.
        x: Rows with the intercept's column, float64.
        y: Labels or counts.
        clip: C.

    Returns:
        ``gradient``, in the order of the coefficients, followed by the sum of squares if it is released; and
        ``moments``, inputs x inputs.
    """
    weights = row_weights(x, clip)
    beta = coefficients.reshape(family.predictors, x.shape[1])
    target = family.target(y)
    u = target - family.mean(x @ beta.T)
    weighted = weights[:, None] * x
    gradient = (u.T @ weighted).ravel()
    if family.extra:
        gradient = np.append(gradient, family.squares * clip * (weights @ target[:, 0] ** 2))
    return {GRADIENT: gradient, MOMENTS: weighted.T @ x}


def sensitivities(family: Family, clip: float, client_rows: int | None = None) -> dict[str, float]:
    """How much a neighbour's sums can differ, in the Euclidean and the Frobenius norm.

    Args:
        family: The likelihood.
        clip: C.
        client_rows: R if whole clients are protected; None if single rows are.

    Returns:
        The sensitivity of each sum. With R this is also the norm to which the sum is shortened.
    """
    if client_rows is None:
        return {GRADIENT: family.bound * clip, MOMENTS: clip**2}
    return {GRADIENT: client_rows * family.bound * clip / 4, MOMENTS: client_rows * clip**2 / 2}


def clipped_client(exact: Mapping[str, np.ndarray], bounds: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Shorten a client's sums to their bounds, as the module describes. The result must not leave the client.

    Args:
        exact: The result of ``clipped_sums``.
        bounds: B_g and B_M, the result of ``sensitivities``.

    Returns:
        The sums.
    """
    factor = min(1.0, bounds[MOMENTS] / max(float(np.linalg.norm(exact[MOMENTS])), 1e-300))
    gradient, moments = factor * exact[GRADIENT], factor * exact[MOMENTS]
    shorter = min(1.0, bounds[GRADIENT] / max(float(np.linalg.norm(gradient)), 1e-300))
    return {GRADIENT: shorter * gradient, MOMENTS: moments}


def release(name: str, exact: np.ndarray, scale: float, secret: bytes, label: str) -> np.ndarray:
    """Add noise to one sum.

    Args:
        name: ``"gradient"``, ``"curvature"`` or ``"moments"``.
        exact: The sum.
        scale: The standard deviation of the noise: multiplier times sensitivity.
        secret: The secret that the noise is generated from.
        label: The label of this release.

    Returns:
        The noisy sum; a matrix stays symmetric.
    """
    if name != MOMENTS:
        return add_noise(exact, scale, secret, label)
    rows, columns = np.tril_indices(len(exact))
    spread = np.where(rows == columns, scale, scale / np.sqrt(2))
    found = np.zeros_like(exact)
    found[rows, columns] = add_noise(exact[rows, columns], spread, secret, label)
    return found + np.tril(found, -1).T
