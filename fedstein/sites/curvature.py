"""Curvature sites: t_k is a Gaussian factor, kept as natural parameters (eta, Lambda), and the factors add up.

After client k has trained it expands its own log-likelihood to second order at the new particles, with gradient g and
Gauss-Newton matrix H:

    log t_k(theta) = eta_k . theta - theta' Lambda_k theta / 2,      Lambda_k = H,   eta_k = g + H theta.

Sites start at zero, which is t_k = 1. The score of everybody else's likelihood is (sum eta - sum Lambda theta) without
the client's own site, so a client trains on prior + exact own likelihood + Gaussian factors for the others. Expectation
propagation and partitioned variational inference keep such factors too; here they steer particles.

A client's gradient g at the particles of a later round, which a HIP report is, says how wrong its site has become
there: D_k = g - (eta_k - Lambda_k theta). ``sites.renew`` takes eta_k + rho D_k for eta_k; with rho = 1 the site is
expanded where the particles are now, with the curvature it had. One round renews a third of all sites at most: with
more reports than that, rho is less. Sites of one age forget where the particles were when others had their say.

``full`` has one d x d site for all particles (H and g averaged over them, expanded at their mean); ``diagonal`` has one
diagonal site a particle, because a network's particles sit in different modes. ``eigen`` is ``diagonal`` after the
inputs were rotated (``fedstein.basis``): nothing here knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.models.base import Blocks, Model, cut, join
from fedstein.models.fisher import diagonal_fisher, full_fisher
from fedstein.shard import Shard, in_pieces, whole
from fedstein.sites.base import Arrays, Cavity, Own, Site, State, Sums, Survey
from fedstein.stein.discrepancy import frame_of
from fedstein.stein.kernels import centred
from fedstein.stein.svgd import tilted_direction

STRUCTURES = ("full", "diagonal", "eigen")
SHARED = ("eta", "precision")
RENEWED = 1 / 3  # of all sites, by the reports of one round


def curvature_site(
    model: Model,
    *,
    structure: str,
    stiffness: float = 1.0,
    damping: float,
    label_samples: int,
    particles: int,
    temperature: float,
) -> Site:
    """``stiffness`` c takes c H for H: the gradient at the expansion point stays exact, and how far it is believed
    changes. ``damping`` is rho in site <- (1 - rho) old + rho new; ``label_samples`` 0 takes the expectation.
    """
    full = structure == "full"
    width = (model.dim,) if full else (particles, model.dim)
    shapes = {"eta": width, "precision": (model.dim, model.dim) if full else width}

    def zeros(dtype: Any) -> Arrays:
        return {name: np.zeros(shape, dtype) for name, shape in shapes.items()}

    def parts(arrays: Mapping[str, Array], split: Callable[[Array, tuple[int, ...]], Blocks]) -> tuple[Any, Any]:
        """Natural parameters as the score wants them: blocks, or whole where one site serves all particles."""
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
        trained = jnp.any(state["precision"] != 0)  # a first site has nothing to be damped towards
        keep = jnp.where(trained, 1 - damping, 0.0).astype(new["eta"].dtype)
        return {name: keep * state[name] + (1 - keep) * new[name] for name in SHARED}

    def expand(key: Array, theta: Blocks, shard: Shard) -> State:
        rows = whole(shard)
        weights = rows.weights / temperature

        def piece(number: Array, x: Array, y: Array, w: Array) -> tuple[Blocks, Any]:
            gradient = model.likelihood_score(theta, x, y, w)
            labels = jax.random.fold_in(key, number)
            curvature = full_fisher if full else diagonal_fisher
            return gradient, curvature(model, theta, x, w, labels, label_samples)

        gradient, curved = in_pieces(piece, rows.x, rows.y, weights)
        curved = jax.tree.map(lambda h: stiffness * h, curved)
        if full:
            middle = jnp.mean(join(theta), axis=0)
            return {"eta": jnp.mean(join(gradient), axis=0) + curved @ middle, "precision": curved}
        eta = jax.tree.map(lambda g, c, t: g + c * t, gradient, curved, theta)
        return {"eta": join(eta), "precision": join(curved)}

    def survey(received: Arrays, blocks: Blocks) -> Survey:
        offset, origin = centred(blocks)
        total = cut(received["site_score"], model.widths)
        known = jax.tree.map(jnp.add, model.prior_score(blocks), total)
        return Survey(blocks, offset, origin, frame_of(offset), known)

    def own_score(seen: Survey, state: State) -> Blocks:
        return jax.tree.map(jnp.negative, site_score(seen.blocks, state))

    return Site(
        name="curvature",
        init=lambda start: {name: jnp.asarray(array) for name, array in zeros(start.dtype).items()},
        cavity=cavity,
        refit=refit,
        direction=tilted_direction,
        survey=survey,
        own_score=own_score,
        shared=SHARED,
        sums=natural_sums(zeros, full),
        site_score=site_score,
        row_gradients=lambda rows: 2 * rows,  # the gradient, and about as much again for the curvature
    )


def natural_sums(zeros: Callable[[Any], Arrays], full: bool) -> Sums:
    """The sums of eta and Lambda over clients, in float64: a float32 sum that is added to for ever drifts negative."""

    def tilted(server: Arrays) -> Arrays:
        particles = np.asarray(server["particles"])
        precision = server["precision"]
        pulled = particles.astype(np.float64) @ precision if full else particles * precision
        return {"site_score": np.subtract(server["eta"], pulled, out=pulled).astype(particles.dtype)}

    def cavity(server: Arrays, accepted: Own | None) -> Arrays:
        dtype = server["particles"].dtype
        others = {name: server[name] - np.asarray(accepted[name]) if accepted else server[name] for name in SHARED}
        return {name: array.astype(dtype) for name, array in others.items()}

    def absorb(server: Arrays, accepted: Own | None, new: Arrays) -> Arrays:
        def replaced(name: str) -> np.ndarray:
            if not accepted:
                return server[name] + np.asarray(new[name])
            others = server[name] - np.asarray(accepted[name])
            return np.add(others, np.asarray(new[name]), out=others)

        return {name: replaced(name) for name in SHARED}

    def total(server: Arrays, accepted: Mapping[int, Own]) -> Arrays:
        sums = zeros(np.float64)
        for client in sorted(accepted):
            for name in SHARED:
                sums[name] += np.asarray(accepted[client][name])
        return sums

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

    def first(particles: Array) -> Arrays:
        return zeros(np.float64)

    return Sums(first=first, tilted=tilted, cavity=cavity, absorb=absorb, total=total, renew=renew)
