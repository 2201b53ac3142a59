"""A client's likelihood, expanded to second order on average over q = N(m, V): a variational Gaussian site.

    Lambda_k = E_q[-d2 log p(D_k | theta)],      eta_k = E_q[d log p(D_k | theta)] + Lambda_k m.

The fixed point of these expansions for all clients together is the Gaussian closest to the posterior in KL(q || p)
(Opper and Archambeau 2009; Khan and Lin 2017). The client samples nothing from its own posterior; it needs m and V.

For a generalised linear model (``Model.glm``) a row sees theta through u = (f, extra) alone, which under q is Gaussian
with few dimensions: one dimension takes Gauss-Hermite quadrature with 31 nodes, two a grid of 15 x 15 nodes, and more
(softmax with several predictors) a fixed set of 512 evenly spread normal points in the coordinates of u. Any other
model takes an average over antithetic draws of q, with the Hessian of the rows at hand (not of labels that the model
would expect, which may lie outside the likelihood's support).

Every Lambda_k is positive semi-definite: by itself if log p is concave in u, and otherwise because negative eigenvalues
of the sum over rows are set to zero. eta_k is computed with the Lambda_k that is sent, so that the site's score at m is
E_q[d log p] even if eigenvalues were cut off. All computations use float64, whatever the shard's precision.
"""

from __future__ import annotations

import itertools
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data.shard import Shard, whole
from fedstein.errors import InputError
from fedstein.inference.linear_algebra import eigh_each
from fedstein.inference.natural import GaussianSite
from fedstein.models.base import Glm, Model, cut
from fedstein.models.chunks import sum_over_chunks
from fedstein.seeds import DRAWS, stream

NODES = 31  # quadrature nodes in one dimension
GRID = 15  # a side, in two
POINTS = 512  # points in more than two dimensions
TOGETHER = 64  # points in one step of ``log_likelihoods``, which bounds the memory
DRAWN = 64  # draws of q, for models that are no generalised linear models


def expand(
    model: Model,
    shard: Shard,
    mean: np.ndarray,
    covariance: np.ndarray,
    *,
    temperature: float = 1.0,
    draws: int = DRAWN,
    seed: int = 0,
) -> GaussianSite:
    """Expand a client's log-likelihood on average over q = N(mean, covariance).

    Args:
        model: The model.
        shard: The client's rows, as the model's ``prepare`` leaves them.
        mean: m, d.
        covariance: V, d x d.
        temperature: alpha of p_k = exp(-L_k / alpha).
        draws: How many draws of q, if the model is no generalised linear model; an even number.
        seed: Fixes those draws.

    Returns:
        The site.

    Raises:
        InputError: The mean, the covariance or the expansion has numbers that are not finite.
    """
    mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError(
            "expected a finite mean and covariance to expand the likelihood around, got numbers that are not finite"
        )
    with jax.enable_x64(True):
        rows = (jnp.asarray(shard.x, jnp.float64), _target(shard.y), jnp.asarray(whole(shard).weights, jnp.float64))
        scale = jnp.asarray(1 / temperature, jnp.float64)
        if model.glm is not None:
            points, shares = quadrature(model.glm.predictors + _extra_width(model, model.glm))
            q = (jnp.asarray(mean), jnp.asarray(covariance))
            gradient, curved, _ = _expand_glm(model, *q, *rows, scale, jnp.asarray(points), jnp.asarray(shares))
        else:
            theta = jnp.asarray(antithetic(mean, covariance, draws, seed))
            gradient, curved = _expand_any(model, theta, *rows, scale)
        gradient, curved = np.asarray(gradient), np.asarray(curved)
    return _checked(model, gradient, curved, mean)


def expand_at_nodes(
    model: Model, shard: Shard, means: np.ndarray, covariances: np.ndarray, *, temperature: float = 1.0
) -> list[tuple[GaussianSite, float]]:
    """Expand a generalised linear model's log-likelihood over several q, and say how large it is on average over each.

    Args:
        model: The model; it must have ``glm``.
        shard: The client's rows, as the model's ``prepare`` leaves them.
        means: J x d.
        covariances: J x d x d.
        temperature: alpha of p_k = exp(-L_k / alpha).

    Returns:
        The site and E_q[log p(D | theta)] for each q.

    Raises:
        InputError: The model is no generalised linear model, or a number is not finite.
    """
    if model.glm is None:
        raise InputError(f"expected a generalised linear model to expand at several nodes, got {model.name!r}")
    found = []
    with jax.enable_x64(True):
        rows = (jnp.asarray(shard.x, jnp.float64), _target(shard.y), jnp.asarray(whole(shard).weights, jnp.float64))
        scale = jnp.asarray(1 / temperature, jnp.float64)
        rule = [jnp.asarray(part) for part in quadrature(model.glm.predictors + _extra_width(model, model.glm))]
        for mean, covariance in zip(means, covariances, strict=True):
            q = (jnp.asarray(mean, jnp.float64), jnp.asarray(covariance, jnp.float64))
            gradient, curved, value = (np.asarray(part) for part in _expand_glm(model, *q, *rows, scale, *rule))
            if not np.isfinite(value):
                raise InputError(f"the log-likelihood of model {model.name!r} is not finite where the posterior is")
            found.append((_checked(model, gradient, curved, np.asarray(mean, np.float64)), float(value)))
    return found


def log_likelihoods(model: Model, shard: Shard, theta: np.ndarray, *, temperature: float = 1.0) -> np.ndarray:
    """A client's log-likelihood at given points, summed in float64.

    Logistic and softmax regression evaluate rows in the precision of the shard. In float32 this is four times faster,
    and the differences between the sums over 500 rows are right to about 2e-4, which is nothing to a weight. Other
    likelihoods are evaluated in float64: differences of logarithms of gamma functions, for instance, need it.

    Args:
        model: The model.
        shard: The client's rows, as the model's ``prepare`` leaves them.
        theta: n x d points.
        temperature: alpha of p_k = exp(-L_k / alpha).

    Returns:
        n sums over rows.
    """
    simple = model.glm is not None and model.glm.extra is None and model.task == "classification"
    with jax.enable_x64(True):
        kind = shard.x.dtype if simple else jnp.float64
        x, y = jnp.asarray(shard.x, kind), _target(shard.y)
        weights = jnp.asarray(whole(shard).weights, kind) / temperature
        missing = -len(theta) % TOGETHER
        points = np.concatenate([theta, np.repeat(theta[-1:], missing, axis=0)]).reshape(-1, TOGETHER, model.dim)
        return np.asarray(_log_likelihoods(model, jnp.asarray(points, kind), x, y, weights)).ravel()[: len(theta)]


def _checked(model: Model, gradient: np.ndarray, curved: np.ndarray, mean: np.ndarray) -> GaussianSite:
    """The site of an expansion, symmetric and positive semi-definite."""
    if not (np.isfinite(gradient).all() and np.isfinite(curved).all()):
        raise InputError(
            f"the log-likelihood of model {model.name!r} has derivatives that are not finite where the posterior is; "
            "look for values that are impossible under the model, or for logarithms of zero"
        )
    curved = 0.5 * (curved + curved.T)
    if model.glm is None or not model.glm.concave:
        curved = positive_part(curved)
    return GaussianSite(gradient + curved @ mean, curved)


def row_gradients(model: Model, rows: int, draws: int = DRAWN) -> int:
    """Return the cost of an expansion, in gradients of one row.

    Args:
        model: The model.
        rows: The rows of the client.
        draws: Draws of q, if the model is no generalised linear model.

    Returns:
        Two a row for a generalised linear model (gradient and curvature; its nodes see numbers, not vectors), and
        draws x (1 + d) for any other.
    """
    return 2 * rows if model.glm is not None else rows * draws * (1 + model.dim)


@lru_cache(maxsize=8)  # every expansion of a client needs the same rule
def quadrature(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and their shares for the expectation over a standard normal vector.

    Args:
        dim: Its length.

    Returns:
        n x dim points and n shares that add up to one.
    """
    from scipy.special import ndtri  # imported here: it would take a third of the time of importing Fedstein

    if dim <= 2:
        nodes, shares = np.polynomial.hermite_e.hermegauss(NODES if dim == 1 else GRID)
        shares = shares / shares.sum()
        grid = np.array(list(itertools.product(nodes, repeat=dim)))
        return grid, np.array([np.prod(pair) for pair in itertools.product(shares, repeat=dim)])
    # The additive recurrence whose steps are powers of the generalised golden ratio, phi^(dim + 1) = phi + 1.
    phi = max(np.roots([1, *[0] * (dim - 1), -1, -1]).real)
    steps = phi ** -np.arange(1.0, dim + 1)
    half = ndtri((0.5 + steps * np.arange(1, POINTS // 2 + 1)[:, None]) % 1)
    points = np.concatenate([half, -half])
    # Whitened, so that polynomials of degree three are integrated exactly, as by a small quadrature rule.
    root = np.linalg.cholesky(points.T @ points / POINTS)
    return np.linalg.solve(root, points.T).T, np.full(POINTS, 1 / POINTS)


def antithetic(mean: np.ndarray, covariance: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draws of N(mean, covariance) in pairs that mirror each other at the mean, so that theirs is the mean exactly."""
    with jax.enable_x64(True):
        half = np.asarray(jax.random.normal(stream(seed, DRAWS, 2), (max(count // 2, 1), len(mean)), jnp.float64))
    values, axes = np.linalg.eigh(0.5 * (covariance + covariance.T))
    offsets = (half * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    return mean + np.concatenate([offsets, -offsets])


def positive_part(matrix: np.ndarray) -> np.ndarray:
    """The nearest positive semi-definite matrix: negative eigenvalues become zero."""
    values, axes = np.linalg.eigh(matrix)
    return matrix if values[0] >= 0 else (axes * np.maximum(values, 0.0)) @ axes.T


def _target(y: Array) -> Array:
    return jnp.asarray(y, jnp.float64) if jnp.issubdtype(y.dtype, jnp.floating) else jnp.asarray(y)


def _extra_width(model: Model, glm: Glm) -> int:
    return 0 if glm.extra is None else model.widths[glm.extra]


class _Places(NamedTuple):
    """Where coefficients (predictors x inputs) and extra parameters stand in theta."""

    weights: np.ndarray
    extra: np.ndarray


def _places(model: Model, glm: Glm) -> _Places:
    edges = np.cumsum((0, *model.widths))
    weights = np.arange(edges[glm.block], edges[glm.block + 1]).reshape(glm.predictors, -1)
    extra = np.arange(0) if glm.extra is None else np.arange(edges[glm.extra], edges[glm.extra + 1])
    return _Places(weights, extra)


@partial(jax.jit, static_argnums=0)
def _expand_glm(
    model: Model,
    mean: Array,
    covariance: Array,
    x: Array,
    y: Array,
    w: Array,
    scale: Array,
    points: Array,
    shares: Array,
) -> tuple[Array, Array, Array]:
    """E_q[d log p] (d), E_q[-d2 log p] (d x d) and E_q[log p], summed over rows."""
    glm = model.glm
    assert glm is not None
    places = _places(model, glm)

    def log_density(u: Array, target: Array) -> Array:
        return glm.log_density(u[: glm.predictors], target, u[glm.predictors :])

    plain = jax.vmap(jax.vmap(log_density, (0, None)))  # rows, points
    first = jax.vmap(jax.vmap(jax.grad(log_density), (0, None)))
    second = jax.vmap(jax.vmap(jax.hessian(log_density), (0, None)))

    def piece(_: Array, x: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
        middle, spread = _predictors(places, mean, covariance, x)
        u = middle[:, None, :] + jnp.einsum("iab,nb->ina", spread, points)
        slope = w[:, None] * jnp.einsum("n,ina->ia", shares, first(u, y))
        curve = -w[:, None, None] * jnp.einsum("n,inab->iab", shares, second(u, y))
        if glm.concave and u.shape[2] == 1:
            curve = jnp.maximum(curve, 0.0)  # rounding
        value = w @ (plain(u, y) @ shares)
        return (*_pull_back(model.dim, places, x, slope, curve), value)

    return sum_over_chunks(piece, x, y, w * scale)


def _predictors(places: _Places, mean: Array, covariance: Array, x: Array) -> tuple[Array, Array]:
    """The mean of every row's u, rows x a, and a root of its covariance, rows x a x a."""
    weights, extra = places
    rows, count = x.shape[0], len(extra)
    middle = jnp.concatenate([x @ mean[weights].T, jnp.broadcast_to(mean[extra], (rows, count))], axis=1)
    within = jnp.einsum("id,pdqe,ie->ipq", x, covariance[weights[:, :, None, None], weights[None, None]], x)
    across = jnp.einsum("id,pda->ipa", x, covariance[weights[:, :, None], extra])
    own = jnp.broadcast_to(covariance[extra[:, None], extra], (rows, count, count))
    spread = jnp.concatenate(
        [jnp.concatenate([within, across], axis=2), jnp.concatenate([across.transpose(0, 2, 1), own], axis=2)], axis=1
    )
    if spread.shape[1] == 1:
        return middle, jnp.sqrt(jnp.maximum(spread, 0.0))
    values, axes = eigh_each(spread)  # gives a root even if the covariance is singular
    return middle, axes * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]


def _pull_back(dim: int, places: _Places, x: Array, slope: Array, curve: Array) -> tuple[Array, Array]:
    """Derivatives with respect to every row's u -> derivatives with respect to theta, summed over rows."""
    weights, extra = places
    p = weights.shape[0]
    gradient = jnp.zeros(dim).at[weights].add(slope[:, :p].T @ x).at[extra].add(jnp.sum(slope[:, p:], axis=0))
    matrix = jnp.zeros((dim, dim))
    for a, b in itertools.product(range(p), repeat=2):
        matrix = matrix.at[weights[a][:, None], weights[b]].add(x.T @ (curve[:, a, b][:, None] * x))
    if len(extra):
        across = jnp.einsum("ipa,id->pda", curve[:, :p, p:], x)
        matrix = matrix.at[weights[:, :, None], extra].add(across)
        matrix = matrix.at[extra[:, None, None], weights].add(across.transpose(2, 0, 1))
        matrix = matrix.at[extra[:, None], extra].add(jnp.sum(curve[:, p:, p:], axis=0))
    return gradient, matrix


@partial(jax.jit, static_argnums=0)
def _expand_any(model: Model, theta: Array, x: Array, y: Array, w: Array, scale: Array) -> tuple[Array, Array]:
    """The same as averages over draws, one after the other: d Hessian-vector products each."""

    def log_likelihood(one: Array, x: Array, y: Array, w: Array) -> Array:
        return model.log_likelihood(cut(one[None, :], model.widths), x, y, w)[0]

    def piece(_: Array, x: Array, y: Array, w: Array) -> tuple[Array, Array]:
        gradient = jax.grad(log_likelihood)
        return jax.lax.map(lambda one: (gradient(one, x, y, w), -jax.jacfwd(gradient)(one, x, y, w)), theta)

    size = {"size": x.shape[0]} if model.whole_shard else {}
    gradients, curved = sum_over_chunks(piece, x, y, w * scale, **size)
    return jnp.mean(gradients, axis=0), jnp.mean(curved, axis=0)


@partial(jax.jit, static_argnums=0)
def _log_likelihoods(model: Model, points: Array, x: Array, y: Array, w: Array) -> Array:
    """Pieces x points in a piece, one piece after the other."""
    size = {"size": x.shape[0]} if model.whole_shard else {}

    def some(theta: Array) -> Array:
        def piece(_: Array, x: Array, y: Array, w: Array) -> Array:
            return model.log_likelihood(cut(theta, model.widths), x, y, w).astype(jnp.float64)

        return sum_over_chunks(piece, x, y, w, **size)

    return jax.lax.map(some, points)
