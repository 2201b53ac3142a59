"""Prior times sites by a grid over two or three parameters, if the prior is Gaussian in all others given them.

Linear regression has h = (log xi, log gamma), negative binomial regression a dispersion in place of gamma, and a
random intercept adds log tau. Given h the weights w are Gaussian (``collapse``), and the density of h is known up to a
constant. A grid in the coordinates z of its Laplace approximation, h = centre + root z, gives the moments of theta
without the noise of sampling, and draws of h whose density is known: a cell by its share, a point in it uniformly.
(One parameter has a grid of its own, ``scale_sites``, which knows of sites at several scales.)
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference.cells import Cells
from fedstein.inference.collapse import Prepared, conditional, log_density, parts_of, prepared, prior_given, together
from fedstein.inference.laplace import laplace_frame
from fedstein.inference.natural import GaussianSite
from fedstein.models.base import Model

SIDE = {2: 61, 3: 27}  # points along an axis
REACH, LOOK = 60.0, 241  # how far along an axis of z, and at how many places, the ends are looked for
SEARCHES = 4  # for the mode
DEPTH = 14.0  # nats below the peak at which the grid ends
MULTIPLE = 64  # the number of points is rounded up to a multiple of it, so that few programs are compiled


class HyperGrid(NamedTuple):
    """Cells of equal size around n points of h.

    Attributes:
        points: n x m values of h.
        log_density: n log-densities per unit of z, whose exponentials times ``volume`` add up to one.
        spans: m x m; a cell is its point plus u @ spans with u uniform in (-1/2, 1/2)^m.
        volume: The size of a cell, in units of z.
    """

    points: np.ndarray
    log_density: np.ndarray
    spans: np.ndarray
    volume: float

    @property
    def shares(self) -> np.ndarray:
        found: np.ndarray = np.exp(self.log_density) * self.volume
        return found

    @property
    def cells(self) -> Cells:
        """The same as boxes to draw from."""
        sides = np.full(len(self.spans), SIDE[len(self.spans)])
        return Cells(self.points[0], self.spans, sides, self.log_density)


def has_grid(model: Model) -> bool:
    """Whether the prior is Gaussian in all but two or three parameters when these are known."""
    return prior_given(model) is not None and len(parts_of(model).moved) in SIDE


def tabulate(model: Model, total: GaussianSite, start: np.ndarray | None = None) -> HyperGrid:
    """The density of h.

    Args:
        model: A model with such a prior (``has_grid``).
        total: The sum of the sites.
        start: Where the search for the mode begins, d; zero unless said otherwise.

    Returns:
        The grid.

    Raises:
        InputError: The density has no peak or no end, or is not finite.
    """
    moved = parts_of(model).moved
    if not (np.isfinite(total.eta).all() and np.isfinite(total.precision).all()):
        raise InputError("the prior and the sites have no finite moments: the sites hold numbers that are not finite")
    with jax.enable_x64(True):
        ready = prepared(model, *total)
        first = np.zeros(model.dim) if start is None else np.asarray(start, np.float64)
        centre, places, root, near = _ends(model, ready, first[moved])
        axes = []
        for found in near:
            if not len(found) or found[0] == 0 or found[-1] == LOOK - 1:
                raise InputError(
                    "the prior and the sites have no finite moments: the density of the prior's scales does not fall "
                    "towards zero; let clients train first, or use a proper prior"
                )
            axes.append(np.linspace(places[found[0] - 1], places[found[-1] + 1], SIDE[len(moved)]))
        z = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
        points = centre + z @ root.T
        heights = _heights_at(model, ready, points)
    steps = np.array([axis[1] - axis[0] for axis in axes])
    volume = float(np.prod(steps))
    return HyperGrid(points, _normalised(heights, volume), steps[:, None] * root.T, volume)


def _ends(
    model: Model, ready: Prepared, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """Look along every axis through the mode of h for the places at which the density is not negligible.

    The search for the mode can end beside it, so that the density is far larger elsewhere on an axis. It then begins
    again there.

    Returns:
        The mode, the places along an axis, the root of the covariance there, and for each axis the indices of places.
        There are none if the density is not finite, or if no search came near the mode.
    """
    places = np.linspace(-REACH, REACH, LOOK)
    rays = np.concatenate([places[:, None] * np.eye(len(start))[axis] for axis in range(len(start))])
    for _ in range(SEARCHES):
        frame = laplace_frame(model, ready, start)
        centre, root = np.asarray(frame.centre), np.asarray(frame.root)
        points = centre + rays @ root.T
        heights = _heights_at(model, ready, points)
        top = heights.max()
        near = [np.flatnonzero(along > top - DEPTH) for along in heights.reshape(len(start), LOOK)]
        if not np.isfinite(top):
            return centre, places, root, [found[:0] for found in near]
        if all(map(len, near)):
            break
        start = points[int(np.argmax(heights))]
    return centre, places, root, near


def moments(model: Model, total: GaussianSite, grid: HyperGrid) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d) and covariance (d x d) of theta."""
    shares = grid.shares
    kept = np.flatnonzero(shares > 1e-9)
    shares = shares[kept] / shares[kept].sum()
    missing = -len(kept) % MULTIPLE
    points = np.concatenate([grid.points[kept], np.repeat(grid.points[kept][-1:], missing, axis=0)])
    with jax.enable_x64(True):
        ready = prepared(model, *total)
        weights = np.concatenate([shares, np.zeros(missing)])
        means, spread = _moments(model, ready, jnp.asarray(points), jnp.asarray(weights))
        means, spread = np.asarray(means)[: len(kept)], np.asarray(spread)
    mean = shares @ means
    return mean, spread + (means - mean).T @ (shares[:, None] * (means - mean))


def _normalised(heights: np.ndarray, volume: float) -> np.ndarray:
    heights = np.where(np.isfinite(heights), heights, -np.inf)
    found: np.ndarray = heights - heights.max()
    return found - np.log(np.sum(np.exp(found)) * volume)


def _heights_at(model: Model, ready: Prepared, points: np.ndarray) -> np.ndarray:
    return np.asarray(_heights(model, ready, jnp.asarray(points)))


@partial(jax.jit, static_argnums=0)
def _heights(model: Model, ready: Prepared, points: Array) -> Array:
    return jax.lax.map(lambda point: log_density(model, ready, point), points)


@partial(jax.jit, static_argnums=0)
def _moments(model: Model, ready: Prepared, points: Array, shares: Array) -> tuple[Array, Array]:
    """The conditional means, and the average of the conditional covariances."""
    given = parts_of(model).given

    def one(total: Array, entry: tuple[Array, Array]) -> tuple[Array, Array]:
        moved, share = entry
        gauss = conditional(model, ready, moved)
        return total + share * gauss.root @ gauss.root.T, together(model, gauss.mean, moved)

    total, means = jax.lax.scan(one, jnp.zeros((len(given), len(given))), (points, shares))
    return means, jnp.zeros((model.dim, model.dim)).at[np.ix_(given, given)].set(total)
