"""The paper's sites: N local particles whose KDE stands for p0 * t_k.

They start as the global particles, drawn from p0, with t_k = 1: so their KDE is p0 * t_k and not t_k, and the tilted
score is score(kde of q) - score(kde of local) + score(p0) + score(p_k). The prior is not counted twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.data.shard import Shard
from fedstein.inference.sites.base import Arrays, Cavity, Kde, Site, SiteKind, SiteSettings, State
from fedstein.models.base import Blocks, Model, cut, join
from fedstein.settings import PositiveFloat
from fedstein.stein import KERNELS
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture, offset_kde_score
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop


class ParticleSettings(SiteSettings):
    """Settings of the paper's sites."""

    kind: str = "particles"
    density: Literal["log", "reference"] = Field(
        "log",
        description="The density estimate: computed in log space, or the DSVGD authors' floored form, whose score "
        "vanishes in many dimensions.",
    )
    bandwidth: PositiveFloat = Field(0.55, description="Standard deviation of the density estimate's Gaussian kernel.")


def particle_site(model: Model, settings: ParticleSettings, method: Any) -> Site:
    """Build the paper's sites.

    Args:
        model: The model.
        settings: The settings of ``[sites]``.
        method: The settings of ``[algorithm]``: ``distill_steps`` is L', the SVGD iterations that refit the local
            particles (eqn:local_svgd); step size, epsilon and kernel are those of the method.

    Returns:
        The site.
    """
    density, bandwidth, steps = settings.density, settings.bandwidth, method.distill_steps
    optimiser, kde_dim = AdaGrad(method.step_size, method.epsilon), model.kde_dim or model.dim
    direction = partial(
        tilted_direction, kde_bandwidth=bandwidth, density=density, kde_dim=kde_dim, kernel=KERNELS[method.kernel]
    )

    def cavity(received: Arrays, before: Blocks, state: State) -> Cavity:
        local = model.split(state["local"])
        factors = (Mixture(before, 1.0), Mixture(local, -1.0))
        linear = model.linear_prior_score
        return Cavity(model.prior_score if linear is None else None, factors, linear)

    def refit(key: Array, before: Blocks, after: Blocks, state: State, shard: Shard) -> State:
        local = model.split(state["local"])  # eqn:tk: t_new = (q_new / q_old) t_old
        target = (Mixture(after, 1.0), Mixture(before, -1.0), Mixture(local, 1.0))
        return {"local": join(svgd_loop(steps, local, None, target, direction, optimiser)[0])}

    def common_score(received: Arrays, blocks: Blocks, offset: Blocks) -> Blocks:
        of_q = offset_kde_score(offset, Mixture(offset, 1.0), bandwidth, density, kde_dim)
        return jax.tree.map(jnp.add, model.prior_score(blocks), of_q)

    def own_score(blocks: Blocks, offset: Blocks, origin: Blocks, state: State) -> Blocks:
        local = Mixture(cut(state["local"], model.widths), -1.0).relative_to(origin)
        return offset_kde_score(offset, local, bandwidth, density, kde_dim)

    return Site(
        name="particles",
        init=lambda start: {"local": start},
        cavity=cavity,
        refit=refit,
        common_score=common_score,
        own_score=own_score,
        direction=direction,
        kde=Kde(density, bandwidth),
    )


PARTICLES = SiteKind(
    "particles", "the paper's: N local particles and their kernel density estimate", ParticleSettings, particle_site
)
