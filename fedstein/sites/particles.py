"""The paper's sites: N local particles whose KDE stands for p0 * t_k.

They start as the global particles, drawn from p0, with t_k = 1: so their KDE is p0 * t_k and not t_k, and the tilted
score is score(kde of q) - score(kde of local) + score(p0) + score(p_k). The prior is not counted twice.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, cut, join
from fedstein.shard import Shard
from fedstein.sites.base import Arrays, Cavity, Site, State, Survey
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.discrepancy import frame_of
from fedstein.stein.kde import Mixture, offset_kde_score
from fedstein.stein.kernels import centred
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.walk import walk


def particle_site(model: Model, *, density: str, bandwidth: float, steps: int, optimiser: AdaGrad) -> Site:
    """``steps`` is L', the SVGD iterations that refit the local particles (eqn:local_svgd)."""
    kde_dim = model.kde_dim or model.dim
    direction = partial(tilted_direction, kde_bandwidth=bandwidth, density=density, kde_dim=kde_dim)

    def cavity(received: Arrays, before: Blocks, state: State) -> Cavity:
        local = model.split(state["local"])
        factors = (Mixture(before, 1.0), Mixture(local, -1.0))
        linear = model.linear_prior_score
        return Cavity(model.prior_score if linear is None else None, factors, linear)

    def refit(key: Array, before: Blocks, after: Blocks, state: State, shard: Shard) -> State:
        local = model.split(state["local"])  # eqn:tk: t_new = (q_new / q_old) t_old
        target = (Mixture(after, 1.0), Mixture(before, -1.0), Mixture(local, 1.0))
        return {"local": join(walk(steps, local, None, target, direction, optimiser)[0])}

    def survey(received: Arrays, blocks: Blocks) -> Survey:
        offset, origin = centred(blocks)
        of_q = offset_kde_score(offset, Mixture(offset, 1.0), bandwidth, density, kde_dim)
        score = jax.tree.map(jnp.add, model.prior_score(blocks), of_q)
        return Survey(blocks, offset, origin, frame_of(offset), score)

    def own_score(seen: Survey, state: State) -> Blocks:
        local = Mixture(cut(state["local"], model.widths), -1.0).relative_to(seen.origin)
        return offset_kde_score(seen.offset, local, bandwidth, density, kde_dim)

    return Site("particles", lambda start: {"local": start}, cavity, refit, direction, survey, own_score)
