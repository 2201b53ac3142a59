"""Partitioned variational inference in a private run, for logistic regression: natural gradients with noise.

q = N(m, diag(1/p)). What a client fits in PVI is a function of its rows, so in a private run it fits nothing. It
releases the natural gradient of its expected log-likelihood instead, and its factor moves towards it:

    g = sum_i w_i E_q[y_i - mean(f_i)] x_i,      c = sum_i w_i E_q[mean(f_i) (1 - mean(f_i))] x_i^2,
    eta_k <- eta_k + rho (g + c m - eta_k),      precision_k <- precision_k + rho (c - precision_k),

f_i = x_i . theta, with noise in g and c. A fixed point without noise and clipping is one of PVI with mean-field
Gaussians. Rows have the weights w_i of ``fedstein.privacy.mechanism``, and both expectations are bounded whatever q
is: one row adds at most C to g and at most C^2 / 4 to c. The two are released as one vector (g, k c 4 / C), which one
row changes by at most C sqrt(1 + k^2), at every visit. All of the budget goes to these releases.

rho is ``algorithm.damping``. A step of mean-field Gaussians ignores correlations, so that large rho diverges, and small
rho averages the noise of about 2 / rho visits. q does not include the noise: its intervals are too narrow. The prior's
scale is integrated out on a grid (``grid_moments``) given the factors, which is stable under noise.

Heikkila, Ashman, Swaroop, Turner and Honkela, "Differentially private partitioned variational inference", 2023, clip
the gradients of an optimiser on the client, or the change of the factor. Here the step of the optimiser is the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference import diagonal
from fedstein.inference.factor_method import FactorSettings, factor_method
from fedstein.inference.grid_moments import grid_gaussian
from fedstein.inference.local_vi import Anchor
from fedstein.inference.methods.base import Accepted, Method, Protection, Training
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.models.base import Model
from fedstein.privacy.mechanism import GRADIENT, row_weights
from fedstein.privacy.settings import PrivacySettings

SHARE = 0.5  # k, the share of the curvature in a release
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)  # for expectations over the Gaussian of a linear predictor
LEAST = 1e-3  # the prior's precision in q is at least this
RELEASED = (*diagonal.FACTOR, "visits")


def private_pvi(model: Model, site: Site, settings: FactorSettings, privacy: PrivacySettings) -> Method:
    """Build the method.

    Args:
        model: Logistic regression.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.
        privacy: The settings of ``[privacy]``.

    Returns:
        The method.

    Raises:
        InputError: The model or the settings cannot be private.
    """
    if model.name != "blr" or privacy.kind != "record" or privacy.sums != "plain" or settings.temperature != 1:
        raise InputError(
            "a private run with algorithm.kind = 'pvi' needs model.kind = 'blr', privacy.kind = 'record', "
            "privacy.sums = 'plain' and algorithm.temperature = 1; set them, or use algorithm.kind = 'dsvgd'"
        )
    width, rho = model.widths[0], settings.damping
    bound = privacy.bound(width)
    scale = SHARE * 4 / bound  # of the curvature in a release

    def client_state(server: Arrays) -> State:
        zeros = jnp.zeros_like(server["origin"])
        return {"eta": zeros, "precision": zeros, "visits": jnp.int32(0)}

    def sums(received: Arrays, state: Own, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        mean, precision = (np.asarray(received[name], np.float64)[:width] for name in ("mean", "precision"))
        gradient, curvature = natural_gradient(mean, 1 / precision, x, y, bound)
        return {GRADIENT: np.concatenate([gradient, scale * curvature])}

    def finish(released: Mapping[str, np.ndarray], received: Arrays, state: Own) -> Arrays:
        gradient, curvature = released[GRADIENT][:width], np.maximum(released[GRADIENT][width:] / scale, 0.0)
        mean = np.asarray(received["mean"], np.float64)[:width]
        after = {"visits": jnp.int32(int(state["visits"]) + 1)}
        for name, wanted in (("eta", gradient + curvature * mean), ("precision", curvature)):
            found = np.array(state[name], np.float64)
            found[:width] += rho * (wanted - found[:width])
            after[name] = jnp.asarray(found, np.asarray(state[name]).dtype)
        return after

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        raise AssertionError("in a private run clients fit nothing: they release protected sums")

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        return with_prior(model, diagonal.absorb(model, server, accepted, updates))

    base = factor_method(model, site, settings, fit)
    return base._replace(
        init=lambda key: with_prior(model, base.init(key)),
        apply=apply,
        client_state=client_state,
        shared=RELEASED,
        sequential=False,
        row_gradients=lambda rows: {"train": max(rows, 0), "site": 0},
        protection=Protection(sums, finish, {GRADIENT: bound * (1 + SHARE**2) ** 0.5}),
    )


def with_prior(model: Model, server: Arrays) -> Arrays:
    """The server's state with the prior's factor such that q has the moments of the prior times the clients' factors.

    Args:
        model: Logistic regression.
        server: The server's state.

    Returns:
        The state with new ``prior_eta`` and ``prior_precision``.
    """
    eta, precision = (np.asarray(server[name], np.float64) for name in diagonal.FACTOR)
    found = grid_gaussian(model, eta, np.diag(precision))
    variance = np.diag(np.linalg.inv(found.precision))
    prior = np.maximum(1 / variance - precision, LEAST)
    return {**server, "prior_eta": found.mean * (prior + precision) - eta, "prior_precision": prior}


def natural_gradient(
    mean: np.ndarray, variance: np.ndarray, x: np.ndarray, y: np.ndarray, clip: float
) -> tuple[np.ndarray, np.ndarray]:
    """g and c over a client's rows, before noise. They must not leave the client.

    Args:
        mean: The mean of q.
        variance: Its variances.
        x: Rows with the intercept's column, float64.
        y: Labels 0 and 1.
        clip: C, the bound of a row's norm.

    Returns:
        The gradient and the diagonal of the curvature.
    """
    from scipy.special import expit  # imported here: it would take a third of the time of importing Fedstein

    centre, spread = x @ mean, np.sqrt((x * x) @ variance)
    share = WEIGHTS / WEIGHTS.sum()
    probability: Any = expit(centre[:, None] + spread[:, None] * NODES)
    weights = row_weights(x, clip)
    expected, informed = probability @ share, (probability * (1 - probability)) @ share
    return (weights * (y - expected)) @ x, (weights * informed) @ (x * x)
