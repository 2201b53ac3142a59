"""No site: a client that trains knows the prior and its own likelihood, and nothing of the others."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model
from fedstein.shard import Shard
from fedstein.sites.base import Arrays, Cavity, Site, State, Survey
from fedstein.stein.discrepancy import frame_of
from fedstein.stein.kernels import centred
from fedstein.stein.svgd import tilted_direction


def no_site(model: Model) -> Site:
    """For algorithms that keep no t_k: the pooled reference, and federated averaging."""

    def cavity(received: Arrays, before: Blocks, state: State) -> Cavity:
        linear = model.linear_prior_score
        return Cavity(model.prior_score if linear is None else None, (), linear)

    def refit(key: Array, before: Blocks, after: Blocks, state: State, shard: Shard) -> State:
        return {}

    def survey(received: Arrays, blocks: Blocks) -> Survey:
        offset, origin = centred(blocks)
        return Survey(blocks, offset, origin, frame_of(offset), model.prior_score(blocks))

    def own_score(seen: Survey, state: State) -> Blocks:
        return tuple(jnp.zeros_like(block) for block in seen.blocks)

    return Site("none", lambda start: {}, cavity, refit, tilted_direction, survey, own_score)
