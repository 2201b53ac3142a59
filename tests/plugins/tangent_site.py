"""A kind of site: t_k(theta_n) = exp(g_kn . theta_n), the client's own gradient at each particle and no curvature."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.data.shard import whole
from fedstein.inference.sites import Cavity, Site, SiteKind, SiteSettings
from fedstein.inference.sites.sums import additive_sums
from fedstein.models.base import Model, cut, join
from fedstein.stein import KERNELS
from fedstein.stein.svgd import tilted_direction


class TangentSettings(SiteSettings):
    kind: str = "tangent"
    trust: float = Field(1.0, gt=0, le=1, description="The share of the gradient that the site keeps.")


def tangent(model: Model, settings: TangentSettings, method: Any) -> Site:
    shape = (method.particles, model.dim)

    def add(a: Any, b: Any) -> Any:
        return jax.tree.map(jnp.add, a, b)

    def cavity(received: dict[str, Any], before: Any, state: Any) -> Cavity:
        others = model.split(received["slope"])
        return Cavity(lambda theta: add(model.prior_score(theta), others))

    def refit(key: Any, before: Any, after: Any, state: Any, shard: Any) -> dict[str, Any]:
        rows = whole(shard)
        score = model.likelihood_score(after, rows.x, rows.y, rows.weights / method.temperature)
        return {"slope": settings.trust * join(score)}

    def site_score(blocks: Any, state: Any) -> Any:
        return cut(state["slope"], model.widths)

    return Site(
        name="tangent",
        init=lambda start: {"slope": jnp.zeros(shape, start.dtype)},
        cavity=cavity,
        refit=refit,
        common_score=lambda received, blocks, offset: add(
            model.prior_score(blocks), cut(received["total"], model.widths)
        ),
        own_score=lambda blocks, offset, origin, state: jax.tree.map(jnp.negative, site_score(blocks, state)),
        direction=partial(tilted_direction, kernel=KERNELS[method.kernel]),
        shared=("slope",),
        sums=additive_sums(
            ("slope",),
            lambda dtype: {"slope": np.zeros(shape, dtype)},
            lambda server: {"total": server["slope"].astype(server["particles"].dtype)},
        ),
        site_score=site_score,
        row_gradients=lambda rows: rows,
    )


TANGENT = SiteKind("tangent", "first-order factors", TangentSettings, tangent, has_score=True, adds_up=True)
