"""Sites that depend on the scale of the prior, and the posterior of prior and such sites by a grid over the scale.

Many priors have one number h, the logarithm of a precision, and are Gaussian in the weights w when h is known. Prior
times Gaussian sites is then a mixture over h of Gaussians, and a grid over h gives its moments without sampling.

One site for all h is wrong if rows are few or nearly separable: with a small precision the weights are large and
the likelihood is flat there, but a site that was expanded at typical weights excludes them. So sites may be expanded
at several nodes h_j, each on average over its own q_j = N(mu_j, V_j), the Gaussian of w given h_j. Between nodes
natural parameters are interpolated linearly, which keeps them positive semi-definite. The density of h is

    log p(h, D) >= F(h) = E_q[log p0(w, h)] + E_q[log p(D | w)] - E_q[log q(w)],

the evidence bound, whose derivative by h at the nodes is that of E_q[log p0(w, h)]: a cubic through values and slopes.
Beyond the nodes the site of the last node stays, and its exact integral over w continues F.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference import shared_axes
from fedstein.inference.cells import Cells
from fedstein.inference.collapse import Sums, log_target, parts_of, prior_given, together
from fedstein.inference.natural import GaussianSite
from fedstein.models.base import Model, cut
from fedstein.seeds import DRAWS, stream

REACH = 60.0  # h is searched for between -REACH and REACH
COARSE, FINE = 1201, 401  # points of the first look, and of the grid
DEPTH = 25.0  # nats below the peak at which the grid ends


class ScaleSites(NamedTuple):
    """The sum of all sites at J values of h, and F there. With one node there is one site for every h."""

    nodes: np.ndarray  # J, increasing
    eta: np.ndarray  # J x d
    precision: np.ndarray  # J x d x d
    heights: np.ndarray  # J, F up to a constant
    slopes: np.ndarray  # J, dF / dh


class Grid(NamedTuple):
    """The density of h: points at equal distances, and log-densities whose exponentials integrate to one."""

    points: np.ndarray
    log_density: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        weights = np.exp(self.log_density - self.log_density.max())
        return weights / weights.sum()

    @property
    def mean(self) -> float:
        return float(self.shares @ self.points)

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.shares @ (self.points - self.mean) ** 2))

    @property
    def cells(self) -> Cells:
        """The same as intervals to draw from."""
        step = np.array([[self.points[1] - self.points[0]]])
        return Cells(self.points[:1], step, np.array([len(self.points)]), self.log_density)


def has_scale(model: Model) -> bool:
    """Whether the prior has one number h and is Gaussian in all other parameters when h is known."""
    return prior_given(model) is not None and len(parts_of(model).moved) == 1


def can_have_nodes(model: Model) -> bool:
    """Whether the prior has a scale and the likelihood depends on the Gaussian block alone."""
    form = prior_given(model)
    glm = model.glm
    return has_scale(model) and form is not None and glm is not None and glm.extra is None and glm.block == form.block


def one_site(total: GaussianSite) -> ScaleSites:
    """The same site for every h."""
    zero = np.zeros(1)
    return ScaleSites(zero, total.eta[None], total.precision[None], zero, zero)


def tabulate(model: Model, sites: ScaleSites) -> Grid:
    """The density of h.

    Args:
        model: A model with a scale (``has_scale``).
        sites: The sites.

    Returns:
        The grid.

    Raises:
        InputError: The density has no peak, or is not finite.
    """
    points = np.linspace(-REACH, REACH, COARSE)
    heights = heights_at(model, sites, points)
    heights[~np.isfinite(heights)] = -np.inf
    peak = int(np.argmax(heights))
    near = np.flatnonzero(heights > heights[peak] - DEPTH)
    if not np.isfinite(heights[peak]) or not len(near) or near[0] == 0 or near[-1] == COARSE - 1:
        raise InputError(
            "the prior and the sites have no finite moments: the density of the prior's scale does not fall "
            "towards zero; let clients train first, or use a proper prior"
        )
    step = points[1] - points[0]
    points = np.linspace(points[near[0]] - step, points[near[-1]] + step, FINE)
    return _normalised(points, heights_at(model, sites, points))


def heights_at(model: Model, sites: ScaleSites, scales: np.ndarray) -> np.ndarray:
    """log p(h, D) at n values of h, up to a constant."""
    with np.errstate(all="ignore"):  # far away nothing is finite; ``tabulate`` looks at that
        if (found := with_shared_axes(model, sites, scales[:, None])) is not None:
            return shared_axes.log_integrals(model, total_of(sites), scales[:, None], found)
    with jax.enable_x64(True):
        return np.array(_heights(model, _placed(sites), jnp.asarray(scales)))


def total_of(sites: ScaleSites) -> GaussianSite:
    """The site of the first node, which is the only one if there is one site for every h."""
    return GaussianSite(sites.eta[0], sites.precision[0])


def with_shared_axes(model: Model, sites: ScaleSites, moved: np.ndarray) -> shared_axes.Conditionals | None:
    """w given h by one decomposition for all h; None for sites at several scales, and for several precisions."""
    return shared_axes.conditionals(model, total_of(sites), moved) if len(sites.nodes) == 1 else None


def moments(model: Model, sites: ScaleSites, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d) and covariance (d x d) of theta."""
    shares = grid.shares
    if (found := with_shared_axes(model, sites, grid.points[:, None])) is not None:
        means = shared_axes.joined(model, found.means, grid.points[:, None])
        given = parts_of(model).given
        spread = np.zeros((model.dim, model.dim))
        spread[np.ix_(given, given)] = found.covariance(shares)
    else:
        with jax.enable_x64(True):
            kept = jnp.asarray(np.where(shares > 1e-12, shares, 0.0))
            parts = _moments(model, _placed(sites), jnp.asarray(grid.points), kept)
            means, spread = (np.asarray(part) for part in parts)
    mean = shares @ means
    return mean, spread + (means - mean).T @ (shares[:, None] * (means - mean))


def draw(model: Model, sites: ScaleSites, grid: Grid, count: int, seed: int, widening: float = 1.0) -> np.ndarray:
    """Independent draws: h by its distribution function at evenly spread places, w given h exactly.

    Args:
        model: The model.
        sites: The sites.
        grid: The density of h to draw from.
        count: How many draws.
        seed: Fixes them.
        widening: The factor by which the sds of w given h are larger.

    Returns:
        count x d.
    """
    with jax.enable_x64(True):
        jitter = np.asarray(jax.random.uniform(stream(seed, DRAWS, 3), (count,), jnp.float64))
        noise = np.asarray(jax.random.normal(stream(seed, DRAWS, 4), (count, len(parts_of(model).given)), jnp.float64))
    scales = draw_scales(grid, (np.arange(count) + jitter) / count)
    return draw_given(model, sites, scales[:, None], widening * noise)


def draw_scales(grid: Grid, uniform: np.ndarray) -> np.ndarray:
    """The values of h at which its distribution function is ``uniform``."""
    step = grid.points[1] - grid.points[0]
    edges = np.append(grid.points - step / 2, grid.points[-1] + step / 2)
    return np.interp(uniform, np.append(0.0, np.cumsum(grid.shares)), edges)


def draw_given(model: Model, sites: ScaleSites, moved: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """theta with w drawn given h.

    Args:
        model: A model whose prior is Gaussian given h, which may be several numbers.
        sites: The sites; only one node if h is several numbers.
        moved: n x dim(h) values.
        noise: n x dim(w) standard normal numbers, or wider ones.

    Returns:
        n x d.
    """
    return drawn_with_log_dets(model, sites, moved, noise)[0]


def drawn_with_log_dets(
    model: Model, sites: ScaleSites, moved: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The draws of ``draw_given``, and log |P| / 2 for each of them, where P is the precision of w given h."""
    with jax.enable_x64(True):
        theta, log_dets = _draw(model, _placed(sites), jnp.asarray(moved), jnp.asarray(noise))
        return np.asarray(theta), np.asarray(log_dets)


def log_density_given(model: Model, sites: ScaleSites, theta: np.ndarray, widening: float = 1.0) -> np.ndarray:
    """The log-density of w given h that ``draw_given`` draws from, at n x d points, up to a constant."""
    parts = parts_of(model)
    if (found := with_shared_axes(model, sites, theta[:, parts.moved])) is not None:
        return found.log_densities(theta[:, parts.given], widening)
    with jax.enable_x64(True):
        return np.asarray(_log_density_given(model, _placed(sites), jnp.asarray(theta), jnp.asarray(widening)))


def log_density(model: Model, sites: ScaleSites, grid: Grid, theta: np.ndarray, widening: float = 1.0) -> np.ndarray:
    """The log-density that ``draw`` draws from, at n x d points, up to a constant."""
    scale = theta[:, parts_of(model).moved[0]]
    inside = (scale >= grid.points[0]) & (scale <= grid.points[-1])
    found: np.ndarray = log_density_given(model, sites, theta, widening) + np.where(
        inside, np.interp(scale, grid.points, grid.log_density), -np.inf
    )
    return found


class Node(NamedTuple):
    """The Gaussian of theta at one fixed h, and the terms of F besides the expected log-likelihood."""

    mean: np.ndarray  # d
    covariance: np.ndarray  # d x d, zero for h
    bound: float  # E_q[log p0(w, h)] - E_q[log q(w)], up to a constant
    slope: float  # the derivative of ``bound`` by h


def node(model: Model, scale: float, total: GaussianSite) -> Node:
    """q = N(mu, V), the Gaussian of w given h under the prior and a site.

    Args:
        model: The model.
        scale: h.
        total: The sum of the sites.

    Returns:
        Its moments, and its part of F.
    """
    with jax.enable_x64(True):
        parts = _node(model, Sums(*map(jnp.asarray, total)), jnp.asarray(scale))
        mean, covariance, bound, slope = (np.asarray(part) for part in parts)
    return Node(mean, covariance, float(bound), float(slope))


def _normalised(points: np.ndarray, heights: np.ndarray) -> Grid:
    top = heights.max()
    return Grid(points, heights - top - np.log(np.sum(np.exp(heights - top)) * (points[1] - points[0])))


def _placed(sites: ScaleSites) -> ScaleSites:
    return ScaleSites(*(jnp.asarray(part, jnp.float64) for part in sites))  # type: ignore[arg-type]


def _given(model: Model, sums: Sums, scale: Array) -> tuple[Array, Array]:
    """The mean of w given h (one number, or as many as are not Gaussian), and the Cholesky factor of its precision."""
    form, parts = prior_given(model), parts_of(model)
    assert form is not None
    moved = jnp.atleast_1d(scale)
    blocks = cut(jnp.zeros((1, model.dim)).at[0, parts.moved].set(moved), model.widths)
    own = jnp.broadcast_to(form.precision(blocks)[0], (len(parts.given),))
    lower = jnp.linalg.cholesky(sums.precision[np.ix_(parts.given, parts.given)] + jnp.diag(own))
    pull = sums.eta[parts.given] - sums.precision[np.ix_(parts.given, parts.moved)] @ moved
    return jax.scipy.linalg.cho_solve((lower, True), pull), lower


def _integral(model: Model, sums: Sums, scale: Array) -> Array:
    """log of the integral over w of prior times site."""
    mean, lower = _given(model, sums, scale)
    return log_target(model, sums, together(model, mean, scale[None])) - jnp.sum(jnp.log(jnp.diag(lower)))


def _between(sites: ScaleSites, scale: Array) -> tuple[Sums, Array, Array]:
    """The site at h, F at the nearest place between the nodes, and that place."""
    count = len(sites.nodes)
    if count == 1:
        return Sums(sites.eta[0], sites.precision[0]), jnp.zeros(()), jnp.asarray(sites.nodes)[0]
    nodes, heights, slopes = (jnp.asarray(part) for part in (sites.nodes, sites.heights, sites.slopes))
    place = jnp.clip(scale, nodes[0], nodes[-1])
    left = jnp.clip(jnp.searchsorted(nodes, place) - 1, 0, count - 2)
    width = nodes[left + 1] - nodes[left]
    t = (place - nodes[left]) / width
    site = Sums(*(part[left] * (1 - t) + part[left + 1] * t for part in (sites.eta, sites.precision)))
    cubic = (
        (1 + 2 * t) * (1 - t) ** 2 * heights[left]
        + t * (1 - t) ** 2 * width * slopes[left]
        + t**2 * (3 - 2 * t) * heights[left + 1]
        - t**2 * (1 - t) * width * slopes[left + 1]
    )
    return site, cubic, place


@partial(jax.jit, static_argnums=0)
def _heights(model: Model, sites: ScaleSites, scales: Array) -> Array:
    def one(scale: Array) -> Array:
        site, height, place = _between(sites, scale)
        return height + _integral(model, site, scale) - _integral(model, site, place)

    return jax.lax.map(one, scales)


@partial(jax.jit, static_argnums=0)
def _moments(model: Model, sites: ScaleSites, scales: Array, shares: Array) -> tuple[Array, Array]:
    """The conditional means, and the average of the conditional covariances."""
    given = parts_of(model).given

    def one(total: Array, entry: tuple[Array, Array]) -> tuple[Array, Array]:
        scale, share = entry
        mean, lower = _given(model, _between(sites, scale)[0], scale)
        return total + share * jax.scipy.linalg.cho_solve((lower, True), jnp.eye(len(given))), together(
            model, mean, scale[None]
        )

    total, means = jax.lax.scan(one, jnp.zeros((len(given), len(given))), (scales, shares))
    return means, jnp.zeros((model.dim, model.dim)).at[np.ix_(given, given)].set(total)


@partial(jax.jit, static_argnums=0)
def _draw(model: Model, sites: ScaleSites, moved: Array, noise: Array) -> tuple[Array, Array]:
    def one(entry: tuple[Array, Array]) -> tuple[Array, Array]:
        moved, standard = entry
        mean, lower = _given(model, _between(sites, moved[0])[0], moved)
        offset = jax.scipy.linalg.solve_triangular(lower.T, standard)
        return together(model, mean + offset, moved), jnp.sum(jnp.log(jnp.diag(lower)))

    found: tuple[Array, Array] = jax.lax.map(one, (moved, noise))
    return found


@partial(jax.jit, static_argnums=0)
def _log_density_given(model: Model, sites: ScaleSites, theta: Array, widening: Array) -> Array:
    parts = parts_of(model)

    def one(point: Array) -> Array:
        moved = point[parts.moved]
        mean, lower = _given(model, _between(sites, moved[0])[0], moved)
        standard = lower.T @ (point[parts.given] - mean) / widening
        return jnp.sum(jnp.log(jnp.diag(lower))) - 0.5 * standard @ standard

    return jax.lax.map(one, theta)


@partial(jax.jit, static_argnums=0)
def _node(model: Model, sums: Sums, scale: Array) -> tuple[Array, ...]:
    form, parts = prior_given(model), parts_of(model)
    assert form is not None
    mean, lower = _given(model, sums, scale)
    spread = jax.scipy.linalg.cho_solve((lower, True), jnp.eye(len(parts.given)))

    def expected_prior(scale: Array) -> Array:
        blocks = cut(together(model, mean, scale[None])[None, :], model.widths)
        return model.log_prior(blocks)[0] - 0.5 * jnp.sum(form.precision(blocks)[0] * jnp.diag(spread))

    covariance = jnp.zeros((model.dim, model.dim)).at[np.ix_(parts.given, parts.given)].set(spread)
    height, slope = jax.value_and_grad(expected_prior)(scale)
    return together(model, mean, scale[None]), covariance, height - jnp.sum(jnp.log(jnp.diag(lower))), slope
