"""Models written in NumPyro: a function of (x, y) with priors, and observed rows in a plate.

theta holds the unconstrained values z of all latent variables, one after another. With the transform v = T(z) onto the
support of a variable,

    log p0(theta) = sum over latent variables of [ log p(v) + log |det dT/dz| ],
    log p(y_i | x_i, theta) = the log-probability of the observed variable at row i,

both read from a trace of the function. ``Model.constrain`` maps particles and draws back to v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, cut
from fedstein.models.chunks import sum_over_chunks
from fedstein.models.custom import custom
from fedstein.models.fisher import by_autodiff
from fedstein.models.numpyro_local import local_model
from fedstein.models.numpyro_trace import NumpyroTrace

STARTS = ("median", "prior")
CURVATURES = ("expected", "observed")
NEAR = 0.1  # the standard deviation of a start at the medians, or the prior's if that is less
CENTRE_DRAWS = 1000  # the draws of the prior from which its medians are computed


def from_numpyro(
    model: Callable[..., Any],
    x: np.ndarray,
    y: np.ndarray,
    *,
    arguments: Mapping[str, Any] | None = None,
    local: str | None = None,
    start: str = "median",
    curvature: str = "expected",
    name: str | None = None,
) -> Model:
    """A model from a NumPyro function ``model(x, y)``.

    Args:
        model: The function. ``x`` is rows x features and ``y`` has one target a row; the targets are observed by one
            ``numpyro.sample(..., obs=y)`` inside a plate over the rows. Latent variables are global: they may stand in
            plates of fixed size (schools, say, with the school of a row as a column of x), but not in the plate of the
            rows.
        x: A few rows, at best four or more. They show the shapes, and the checks are made with them.
        y: Their targets.
        arguments: Further keyword arguments for the function, ``{"schools": 65}``.
        local: The latent variable that every client has for itself, such as the effect of a school where the schools
            are the clients. The function is then that of one client and samples it once, outside all plates. It is
            integrated out at the client and does not leave it (``fedstein.models.numpyro_local``);
            ``Posterior.client_effect`` computes it from the client's rows.
        start: Where particles start: ``"median"`` (near the medians of the prior, in unconstrained values) or
            ``"prior"``.
        curvature: For likelihoods that are neither Bernoulli, categorical, Gaussian, Poisson, exponential nor binomial:
            ``"expected"`` (over draws of the likelihood) or ``"observed"`` (the Hessian of the rows at hand).
        name: What messages call the model; the function's name by default.

    Returns:
        The model. ``parameter_names`` gives names such as ``beta[0]`` or ``log(tau)``, and ``constrain`` turns draws
        into values of the NumPyro variables.

    Raises:
        InputError: The function fails, or it is a model that cannot be shared among clients: a latent variable for each
            row, a discrete latent variable, several observed variables, ``numpyro.factor`` or ``numpyro.param``,
            subsampling, rows or priors that depend on other rows. The message says which variable and what to do.
    """
    name = str(name or getattr(model, "__name__", "numpyro"))
    for what, got, valid in (("start", start, STARTS), ("curvature", curvature, CURVATURES)):
        if got not in valid:
            raise InputError(f"model {name!r}: {what} must be one of {', '.join(valid)}, got {got!r}")
    if not callable(model):
        raise InputError(f"models.from_numpyro expects a function model(x, y), got {type(model).__name__}")
    rows, targets = _example(name, x, y)
    trace = NumpyroTrace(name, model, dict(arguments or {}), rows, targets, local)
    kind = trace.likelihood

    def log_likelihood(theta: Array, x: Array, y: Array) -> Array:
        return trace.observed(theta, x, y).log_prob(y)

    def predict(theta: Array, x: Array) -> Array:
        y = jnp.zeros(x.shape[0], jnp.int32 if kind.classes else x.dtype)
        fn = trace.observed(theta, x, y)
        if kind.classes:
            return jnp.stack([fn.log_prob(jnp.full_like(y, c)) for c in range(kind.classes)], axis=1)
        shape = x.shape[:1]
        return jnp.stack([jnp.broadcast_to(fn.mean, shape), -jnp.log(jnp.broadcast_to(fn.variance, shape))], axis=1)

    def sample(key: Array, theta: Array, x: Array) -> Array:
        y = jnp.zeros(x.shape[0], x.dtype)
        return trace.observed(theta, x, y).sample(key).astype(x.dtype)

    centre, spread = _centre(trace)

    def init(key: Array) -> Array:
        if start == "prior":
            return trace.draw_prior(key)
        return centre + spread * jax.random.normal(key, (trace.dim,))

    if local is not None:
        return local_model(trace, rows.shape[1], init)
    drawn = kind.family == "other" and (curvature == "expected" or kind.one_parameter)
    built = custom(
        trace.dim,
        log_prior=trace.log_prior,
        log_likelihood=log_likelihood,
        init=init,
        predict=predict,
        task="classification" if kind.classes else "regression",
        classes=kind.classes,
        name=name,
        likelihood=kind.family,
        sample=sample if drawn else None,
        normalised=True,
        target="count" if kind.counts else "real",
    )
    return built._replace(
        **(_closed_forms(built, predict) if kind.one_parameter else {}),
        features=rows.shape[1],
        log_density=lambda blocks, x, y: jax.vmap(log_likelihood, (0, None, None), 1)(blocks[0], x, y),
        parameter_names=lambda features: trace.names,
        constrain=trace.constrain,
    )


def _example(name: str, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """At least four rows to try the function with."""
    rows, targets = np.asarray(x), np.asarray(y)
    if rows.ndim != 2 or targets.shape != rows.shape[:1] or not len(rows):
        raise InputError(
            f"model {name!r}: x must be rows x features and y have one target a row, got shapes {rows.shape} and "
            f"{targets.shape}"
        )
    places = np.unique(np.linspace(0, len(rows) - 1, min(8, len(rows))).astype(int))
    places = np.resize(places, max(4, len(places)))
    return rows[places].astype(jnp.result_type(float)), targets[places]


def _centre(trace: NumpyroTrace) -> tuple[Array, Array]:
    """Medians of the prior, and how far from them particles start."""
    draws = np.asarray(jax.jit(jax.vmap(trace.draw_prior))(jax.random.split(jax.random.key(0), CENTRE_DRAWS)))
    draws = np.where(np.isfinite(draws), draws, np.nan)
    middle = np.nan_to_num(np.nanmedian(draws, axis=0))
    low, high = np.nan_to_num(np.nanquantile(draws, (0.16, 0.84), axis=0), nan=1.0)
    spread = np.minimum(NEAR, 0.5 * (high - low))
    return jnp.asarray(middle, jnp.result_type(float)), jnp.asarray(spread, jnp.result_type(float))


def _closed_forms(model: Model, predict: Callable[[Array, Array], Array]) -> dict[str, Any]:
    """The Fisher information of an exponential family with one parameter: sum_i w_i (d mu_i)(d mu_i)' / Var(y_i)."""

    def gradients(theta: Array, x: Array) -> Array:
        """rows x d, divided by the standard deviation of y."""
        slopes = jax.jacfwd(lambda at: predict(at, x)[:, 0])(theta)
        return slopes * jnp.exp(0.5 * predict(theta, x)[:, 1])[:, None]

    def over_rows(blocks: Blocks, x: Array, weights: Array, form: str) -> Array:
        def one_particle(theta: Array) -> Array:
            def piece(part: Array, rows: Array, row_weights: Array) -> Array:
                found = gradients(theta, rows)
                return jnp.einsum(form, row_weights, found, found)

            return sum_over_chunks(piece, x, weights)

        return jax.lax.map(one_particle, blocks[0])

    def diagonal(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        if samples:
            return cut(by_autodiff(model, blocks, x, weights, key, samples, diagonal=True), model.widths)
        return (over_rows(blocks, x, weights, "r,rd,rd->d"),)

    def full(blocks: Blocks, x: Array, weights: Array) -> Array:
        return jnp.mean(over_rows(blocks, x, weights, "r,rd,re->de"), axis=0)

    return {"diagonal_curvature": diagonal, "full_curvature": full}
