"""Settling: SVGD on the prior and the summed sites. It uses no likelihood, so it needs no client and no rows.

The steps are taken in coordinates in which the posterior is about round: whitened by the site Gaussian for ``full``
sites, divided by the posterior sd for diagonal ones. The target is the same, and directions that the data hardly
determine converge as fast as the others.

Convergence is judged by the remaining distance, not by the step length, which is small if steps are small. At a fixed
point of SVGD the scores s_j, weighted with the row sums of the kernel, add up to zero (the repulsion cancels in the
sum), so

    delta = P^-1 (sum_j r_j s_j) / (sum_j r_j)

is the remaining distance of the particles' mean, exactly so for a Gaussian target. ``full``: settled when no coordinate
has more than ``TOLERANCE`` posterior sds left. Diagonal sites differ from particle to particle, so there every
particle's own remaining distance, N phi_n / r_n, counts: settled when its root mean square is that small.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.inference.sites.base import Arrays, Site
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.models.base import Model, cut, join
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.kernel import Kernel
from fedstein.stein.kernels import centred, gram_distances
from fedstein.stein.rbf import RBF
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop

TOLERANCE = 0.02  # posterior sds
BLOCK = 50  # steps between two checks of the remaining distance
STEPS = 10_000  # the largest number of steps
OPTIMISER = AdaGrad(0.05, 1e-9)  # the step in posterior sds, to begin with

OnBlock = Callable[[int, float], None]  # steps taken, posterior sds still to go


class Settled(NamedTuple):
    """The particles, and whether the stopping rule was met."""

    particles: np.ndarray
    steps: int
    to_go: float  # posterior sds
    settled: bool


class Frame(NamedTuple):
    """theta = mean + z forth; a d x d matrix, or a row of d factors if it is diagonal."""

    mean: Array
    forth: Array
    back: Array

    def theta(self, z: Array) -> Array:
        return self.mean + (z @ self.forth if self.forth.ndim == 2 else z * self.forth)

    def z(self, theta: Array) -> Array:
        away = theta - self.mean
        return away @ self.back if self.back.ndim == 2 else away * self.back

    def score(self, score: Array) -> Array:
        return score @ self.forth.T if self.forth.ndim == 2 else score * self.forth


def settle(
    model: Model,
    site: Site,
    server: Arrays,
    gaussian: SiteGaussian | None,
    *,
    kernel: Kernel = RBF,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
    on_block: OnBlock = lambda steps, to_go: None,
) -> Settled:
    """Settle the server's particles on p0 and its sums; ``gaussian`` is that of these sums if the sites are full."""
    dtype = np.asarray(server["particles"]).dtype
    # One d x d site is small, and float64 makes a Gaussian exact; diagonal sites may be as wide as a network.
    precision: AbstractContextManager[Any] = jax.enable_x64(True) if gaussian is not None else nullcontext()
    with precision:
        working = jnp.result_type(float)
        received = {name: jnp.asarray(array, working) for name, array in server.items()}
        frame = whitened(gaussian) if gaussian is not None else scaled(model, received)
        sd = jnp.asarray(gaussian.sd) if gaussian is not None else None
        z = frame.z(received["particles"])
        history, scale, taken = jnp.zeros_like(z), 1.0, 0
        to_go = float(remaining_distance(model, site, kernel, received, frame, sd, z))
        on_block(taken, to_go)
        while to_go > tolerance and taken < steps:
            origin = jnp.mean(z, axis=0)
            z, history = settle_block(
                model, site, kernel, received, frame, z, history, jnp.int32(taken), jnp.asarray(scale, working)
            )
            taken += BLOCK
            before, to_go = to_go, float(remaining_distance(model, site, kernel, received, frame, sd, z))
            on_block(taken, to_go)
            # Halve the step if the particles hover: the block brought no progress, and their mean has not moved.
            gone = float(jnp.max(jnp.abs(jnp.mean(z, axis=0) - origin)))
            if to_go > 0.9 * before and gone < 0.5 * BLOCK * scale * OPTIMISER.step_size:
                scale /= 2
        return Settled(np.asarray(frame.theta(z), dtype), taken, to_go, to_go <= tolerance)


def whitened(gaussian: SiteGaussian) -> Frame:
    """P = L L', theta = mean + L^-T z."""
    root = np.linalg.cholesky(gaussian.precision)
    return Frame(jnp.asarray(gaussian.mean), jnp.asarray(np.linalg.inv(root)), jnp.asarray(root))


def scaled(model: Model, received: Arrays) -> Frame:
    """Every coordinate divided by its posterior sd, from the precisions averaged over the particles."""
    precision = np.mean(np.asarray(received["precision"]), axis=0, dtype=np.float64)
    precision = precision + np.maximum(prior_precision(model, received["particles"]), 0)
    sd = 1 / np.sqrt(np.maximum(precision, 1e-9 * precision.max()))
    mean = jnp.mean(received["particles"], axis=0)
    return Frame(mean, jnp.asarray(sd, mean.dtype), jnp.asarray(1 / sd, mean.dtype))


def prior_precision(model: Model, particles: Array) -> np.ndarray:
    """Minus the diagonal of the prior's Hessian at the particles' mean."""
    if model.linear_prior_score is not None:
        return np.full(model.dim, -model.linear_prior_score)
    centre = jnp.mean(particles, axis=0, keepdims=True)

    def score(theta: Array) -> Array:
        return join(model.prior_score(cut(theta, model.widths)))

    def entry(index: Array) -> Array:
        along = jnp.zeros_like(centre).at[0, index].set(1)
        return -jax.jvp(score, (centre,), (along,))[1][0, index]

    return np.asarray(jax.jit(lambda indices: jax.lax.map(entry, indices))(jnp.arange(model.dim)), np.float64)


def target_score(model: Model, site: Site, received: Arrays, frame: Frame) -> Callable[[Array], Array]:
    """The score of p0 times all sites in the frame's coordinates."""
    cavity = site.cavity(received, model.split(received["particles"]), {})

    def score(z: Array) -> Array:
        blocks = cut(frame.theta(z), model.widths)
        found = join(cavity.score(blocks)) if cavity.score is not None else jnp.zeros_like(z)
        return frame.score(found if cavity.linear is None else found + cavity.linear * join(blocks))

    return score


@partial(jax.jit, static_argnums=(0, 1, 2))
def settle_block(
    model: Model,
    site: Site,
    kernel: Kernel,
    received: Arrays,
    frame: Frame,
    z: Array,
    history: Array,
    taken: Array,
    scale: Array,
) -> tuple[Array, Array]:
    score = target_score(model, site, received, frame)
    after, history = svgd_loop(
        BLOCK,
        (z,),
        lambda step, blocks: (score(blocks[0]),),
        (),
        partial(tilted_direction, kernel=kernel),
        OPTIMISER,
        scale=scale,
        history=(history,),
        taken=taken,
    )
    return after[0], history[0]


@partial(jax.jit, static_argnums=(0, 1, 2))
def remaining_distance(
    model: Model, site: Site, kernel: Kernel, received: Arrays, frame: Frame, sd: Array | None, z: Array
) -> Array:
    """The module's delta or N phi / r, in posterior sds: one number."""
    (offset,), _ = centred((z,))
    scores = target_score(model, site, received, frame)(z)
    squared = gram_distances((offset,))
    sums = jnp.sum(kernel.matrix(squared, median_bandwidth(squared)), axis=1)
    if sd is None:
        phi = tilted_direction((offset,), (scores,), (), kernel=kernel)[0]
        return jnp.sqrt(jnp.mean((z.shape[0] * phi / sums[:, None]) ** 2))
    way = (sums @ scores / jnp.sum(sums)) @ frame.forth
    return jnp.max(jnp.abs(way) / sd)
