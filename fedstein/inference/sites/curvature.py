"""Curvature sites: t_k is a Gaussian factor, kept as natural parameters (eta, Lambda), and the factors add up.

After client k has trained it expands its own log-likelihood to second order at the new particles, with gradient g and
Gauss-Newton matrix H:

    log t_k(theta) = eta_k . theta - theta' Lambda_k theta / 2,      Lambda_k = H,   eta_k = g + H theta.

Sites start at zero, which is t_k = 1. The score of the other clients' likelihoods is (sum eta - sum Lambda theta)
without the client's own site. So a client trains on the prior, its own exact likelihood, and Gaussian factors for the
others. Expectation propagation and partitioned variational inference keep such factors too; here they steer particles.

A client's gradient g at the particles of a later round, which a HIP report is, says how wrong its site has become
there: D_k = g - (eta_k - Lambda_k theta). ``sites.renew`` takes eta_k + rho D_k for eta_k; with rho = 1 the site is
expanded at the current particles, and its curvature stays the same. One round renews at most a third of all sites: with
more reports than that, rho is smaller. If all sites had the same age, none would remember where earlier particles were.

``full`` has one d x d site for all particles (H and g averaged over them, expanded at their mean); ``diagonal`` has one
diagonal site a particle, because a network's particles sit in different modes. ``eigen`` is ``diagonal`` after the
inputs were rotated (``fedstein.data.basis``); this module does not depend on the rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.data.shard import Shard, whole
from fedstein.inference.sites.base import Arrays, Cavity, Own, Site, SiteKind, SiteSettings, SiteSums, State
from fedstein.inference.sites.sums import additive_sums
from fedstein.models.base import Blocks, Model, cut, join
from fedstein.models.chunks import sum_over_chunks
from fedstein.models.fisher import diagonal_fisher, full_fisher
from fedstein.settings import Count, PositiveFloat, Share
from fedstein.stein import KERNELS
from fedstein.stein.svgd import tilted_direction

STRUCTURES = ("full", "diagonal", "eigen")
SHARED = ("eta", "precision")
RENEWED = 1 / 3  # the share of all sites that the reports of one round renew


class CurvatureSettings(SiteSettings):
    """Settings of curvature sites."""

    kind: str = "curvature"
    structure: Literal["full", "diagonal", "eigen"] = Field(
        "full",
        description="One d x d matrix for all particles, a diagonal for each particle, or a diagonal in a basis of the "
        "inputs that the clients share.",
    )
    stiffness: PositiveFloat = Field(
        1.0,
        description="The factor c on the curvature H. The gradient at the expansion point stays exact; a larger c "
        "makes the gradient change faster away from this point.",
    )
    damping: Share = Field(1.0, description="rho in site <- (1 - rho) old + rho new.")
    label_samples: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Labels drawn for the curvature of a row; 0 takes the expectation over all labels."
    )
    rank: Count | None = Field(
        None,
        description="Directions of the shared basis of the inputs (structure = 'eigen'); 0 takes all of them up to "
        "2048 inputs, else 256.",
    )
    renew: bool = Field(
        False, description="Whether reports that are likelihood scores renew the sites of their senders."
    )
    settle: bool = Field(
        True, description="Whether the particles settle on prior and sites after the last round (structure = 'full')."
    )
    expand: Literal["mean", "variational"] = Field(
        "mean",
        description="What draws are made from (structure = 'full'): the sites of the rounds, which are expanded at the "
        "particles, or sites that passes over all clients after the last round expand on average over the posterior.",
    )


def curvature_site(model: Model, settings: CurvatureSettings, method: Any) -> Site:
    """Build curvature sites.

    Args:
        model: The model.
        settings: The settings of ``[sites]``.
        method: The settings of ``[algorithm]``: the number of particles, the temperature and the kernel.

    Returns:
        The site.
    """
    stiffness, damping, label_samples = settings.stiffness, settings.damping, settings.label_samples
    temperature, full = method.temperature, settings.structure == "full"
    width = (model.dim,) if full else (method.particles, model.dim)
    shapes = {"eta": width, "precision": (model.dim, model.dim) if full else width}

    def zeros(dtype: Any) -> Arrays:
        return {name: np.zeros(shape, dtype) for name, shape in shapes.items()}

    def parts(arrays: Mapping[str, Array], split: Callable[[Array, tuple[int, ...]], Blocks]) -> tuple[Any, Any]:
        """Natural parameters as the score wants them: blocks, or whole if one site serves all particles."""
        eta, precision = arrays["eta"], arrays["precision"]
        return (eta, precision) if full else (split(eta, model.widths), split(precision, model.widths))

    def score(eta: Any, precision: Any, theta: Blocks) -> Blocks:
        if full:
            return cut(eta[None, :] - join(theta) @ precision, model.widths)
        return jax.tree.map(lambda e, p, t: e - p * t, eta, precision, theta)

    def site_score(blocks: Blocks, state: State) -> Blocks:
        return score(*parts(state, cut), blocks)

    def cavity(received: Arrays, before: Blocks, state: State) -> Cavity:
        eta, precision = parts(received, lambda array, widths: model.split(array))
        if model.linear_prior_score is not None:
            return Cavity(lambda theta: score(eta, precision, theta), (), model.linear_prior_score)
        return Cavity(lambda theta: jax.tree.map(jnp.add, model.prior_score(theta), score(eta, precision, theta)))

    def refit(key: Array, before: Blocks, after: Blocks, state: State, shard: Shard) -> State:
        new = expand(key, after, shard)
        if damping == 1.0:
            return new
        trained = jnp.any(state["precision"] != 0)  # a first site is not damped, because there is no old one
        keep = jnp.where(trained, 1 - damping, 0.0).astype(new["eta"].dtype)
        return {name: keep * state[name] + (1 - keep) * new[name] for name in SHARED}

    def expand(key: Array, theta: Blocks, shard: Shard) -> State:
        rows = whole(shard)
        weights = rows.weights / temperature

        def piece(number: Array, x: Array, y: Array, w: Array) -> tuple[Blocks, Any]:
            gradient = model.likelihood_score(theta, x, y, w)
            labels = jax.random.fold_in(key, number)
            curvature = full_fisher if full else diagonal_fisher
            return gradient, curvature(model, theta, x, w, labels, label_samples, y)

        size = {"size": weights.shape[0]} if model.whole_shard else {}
        gradient, curved = sum_over_chunks(piece, rows.x, rows.y, weights, **size)
        curved = jax.tree.map(lambda h: stiffness * h, curved)
        if full:
            middle = jnp.mean(join(theta), axis=0)
            return {"eta": jnp.mean(join(gradient), axis=0) + curved @ middle, "precision": curved}
        eta = jax.tree.map(lambda g, c, t: g + c * t, gradient, curved, theta)
        return {"eta": join(eta), "precision": join(curved)}

    def common_score(received: Arrays, blocks: Blocks, offset: Blocks) -> Blocks:
        total = cut(received["site_score"], model.widths)
        return jax.tree.map(jnp.add, model.prior_score(blocks), total)

    def own_score(blocks: Blocks, offset: Blocks, origin: Blocks, state: State) -> Blocks:
        return jax.tree.map(jnp.negative, site_score(blocks, state))

    return Site(
        name="curvature",
        init=lambda start: {name: jnp.zeros(shape, start.dtype) for name, shape in shapes.items()},
        cavity=cavity,
        refit=refit,
        common_score=common_score,
        own_score=own_score,
        direction=partial(tilted_direction, kernel=KERNELS[getattr(method, "kernel", "rbf")]),
        shared=SHARED,
        sums=natural_sums(zeros, full),
        site_score=site_score,
        row_gradients=lambda rows: 2 * rows,  # the gradient, and about as much again for the curvature
        full=full,
        settles=full and settings.settle,
        natural=("", "") if full else ("eta", "precision"),
    )


def natural_sums(zeros: Callable[[Any], Arrays], full: bool) -> SiteSums:
    """The sums of eta and Lambda over clients, and how likelihood scores at the particles renew sites."""

    def tilted(server: Arrays) -> Arrays:
        particles = np.asarray(server["particles"])
        precision = server["precision"]
        pulled = particles.astype(np.float64) @ precision if full else particles * precision
        return {"site_score": np.subtract(server["eta"], pulled, out=pulled).astype(particles.dtype)}

    def renew(
        server: Arrays, accepted: Mapping[int, Own], scores: Mapping[int, Any]
    ) -> tuple[Arrays, dict[int, Arrays]]:
        share = min(1.0, RENEWED * len(accepted) / max(len(scores), 1))
        theta = np.asarray(server["particles"])
        where = np.mean(theta, axis=0) if full else theta
        eta, fresh = server["eta"].copy(), {}
        for client in sorted(scores):
            old, precision = (np.asarray(accepted[client][name]) for name in SHARED)
            score = np.asarray(scores[client])
            new = precision @ where if full else precision * where  # in place from here: these are large
            new += np.mean(score, axis=0) if full else score
            if share < 1:
                new -= old
                new *= theta.dtype.type(share)
                new += old
            eta += new
            eta -= old
            fresh[client] = {"eta": new}
        return {"eta": eta}, fresh

    return additive_sums(SHARED, zeros, tilted, renew)


CURVATURE = SiteKind(
    "curvature",
    "Gaussian factors that add up: full, diagonal, or diagonal in a shared eigenbasis of the inputs",
    CurvatureSettings,
    curvature_site,
    has_score=True,
    adds_up=True,
    renewable=True,
)
