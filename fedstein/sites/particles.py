"""The paper's sites: N local particles whose KDE stands for p0 * t_k.

They start as the global particles, drawn from p0, with t_k = 1: so their KDE is p0 * t_k and not t_k, and the tilted
score is score(kde of q) - score(kde of local) + score(p0) + score(p_k). The prior is not counted twice.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from fedstein.models.base import Blocks, Model, cut, join
from fedstein.sites.base import Cavity, Site, State, Survey
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

    def cavity(received: Blocks, state: State) -> Cavity:
        local = model.split(state["particles"])
        factors = (Mixture(received, 1.0), Mixture(local, -1.0))
        return Cavity(model.prior_score, factors, model.linear_prior_score)

    def refit(before: Blocks, after: Blocks, state: State) -> State:
        local = model.split(state["particles"])  # eqn:tk: t_new = (q_new / q_old) t_old
        target = (Mixture(after, 1.0), Mixture(before, -1.0), Mixture(local, 1.0))
        return {"particles": join(walk(steps, local, None, target, direction, optimiser))}

    def survey(received: Blocks) -> Survey:
        offset, origin = centred(received)
        of_q = offset_kde_score(offset, Mixture(offset, 1.0), bandwidth, density, kde_dim)
        score = jax.tree.map(jnp.add, model.prior_score(received), of_q)
        return Survey(received, offset, origin, frame_of(offset), score)

    def own_score(seen: Survey, state: State) -> Blocks:
        local = Mixture(cut(state["particles"], model.widths), -1.0).relative_to(seen.origin)
        return offset_kde_score(seen.offset, local, bandwidth, density, kde_dim)

    return Site("particles", lambda start: {"particles": start}, cavity, refit, direction, survey, own_score)
