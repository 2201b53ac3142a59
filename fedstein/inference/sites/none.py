"""No site: a client that trains knows the prior and its own likelihood, and nothing of the others."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from fedstein.data.shard import Shard
from fedstein.inference.sites.base import Arrays, Cavity, Site, SiteKind, SiteSettings, State
from fedstein.models.base import Blocks, Model
from fedstein.stein import KERNELS
from fedstein.stein.svgd import tilted_direction


class NoneSettings(SiteSettings):
    """Settings for methods without sites; there are no keys."""

    kind: str = "none"


def no_site(model: Model, settings: NoneSettings, method: Any) -> Site:
    """Build the absence of sites, for methods that keep no t_k: pooled SVGD and federated averaging.

    Args:
        model: The model.
        settings: The settings of ``[sites]``; there are none.
        method: The settings of ``[algorithm]``, for their kernel.

    Returns:
        A site whose state is empty.
    """

    def cavity(received: Arrays, before: Blocks, state: State) -> Cavity:
        linear = model.linear_prior_score
        return Cavity(model.prior_score if linear is None else None, (), linear)

    def refit(key: Array, before: Blocks, after: Blocks, state: State, shard: Shard) -> State:
        return {}

    def common_score(received: Arrays, blocks: Blocks, offset: Blocks) -> Blocks:
        return model.prior_score(blocks)

    def own_score(blocks: Blocks, offset: Blocks, origin: Blocks, state: State) -> Blocks:
        return tuple(jnp.zeros_like(block) for block in blocks)

    direction = partial(tilted_direction, kernel=KERNELS[getattr(method, "kernel", "rbf")])
    return Site("none", lambda start: {}, cavity, refit, common_score, own_score, direction)


NONE = SiteKind(
    "none", "no sites: for the references, pooled_svgd and fedavg", NoneSettings, no_site, keeps_state=False
)
