"""The target: the quantities that a client can compute from its rows at given particles.

Selection schemes take a target and ask it for what their formula needs. Each quantity is computed only when it is asked
for, inside the one compiled call of a report:

    log p_k, its score, the prior's score, the score of the site t_k, of the cavity q / t_k, and of the tilted
    p~_k = (q / t_k) p_k, whose score is score(p_k) + score(cavity); and the mean loss of a row.

Likelihoods are tempered: p_k = exp(-L_k / alpha). What the broadcast alone decides is computed once a round and shared
by all clients of a process (``SharedTarget``).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.data.shard import Batch, Shard, minibatch, shuffled, whole
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Blocks, Model
from fedstein.stein.kernel import Kernel
from fedstein.stein.kernels import centred

# Quantities that a scheme declares in ``Scheme.uses``; they decide what the server sends with the particles.
LIKELIHOOD, TILTED, SITE = "likelihood", "tilted", "site"


def row_log_likelihoods(model: Model, blocks: Blocks, x: Array, y: Array) -> Array:
    """log p(y_i | x_i, theta_n) for every row and every particle, rows x N.

    Args:
        model: A model whose likelihood is a product over rows.
        blocks: The particles.
        x: Rows as ``Model.prepare`` returns them.
        y: Labels or targets.
    """
    one = jnp.ones((1,), blocks[0].dtype)
    return jax.vmap(lambda row, label: model.log_likelihood(blocks, row[None], label[None], one))(x, y)


class TargetSpec(NamedTuple):
    """The parts that define every client's target: compiled functions take it as a static argument."""

    model: Model
    site: Site
    temperature: float
    kernel: Kernel


class SharedTerms(NamedTuple):
    """The terms that the clients of one process share in a round. Fields that the scheme does not use are empty."""

    blocks: Blocks  # the particles
    offset: Blocks = ()  # the particles relative to their mean
    origin: Blocks = ()  # the mean of the particles
    common_score: Blocks = ()  # the part of the cavity score that is the same for every client


class SharedTarget:
    """The quantities that depend on the broadcast alone."""

    def __init__(self, spec: TargetSpec, received: Arrays):
        self.kernel, self._spec, self._received = spec.kernel, spec, received

    @cached_property
    def blocks(self) -> Blocks:
        """The particles, in the model's blocks."""
        return self._spec.model.split(self._received["particles"])

    @cached_property
    def centred(self) -> tuple[Blocks, Blocks]:
        """The particles relative to their mean, and that mean."""
        return centred(self.blocks)

    def terms(self, uses: tuple[str, ...]) -> SharedTerms:
        """Return the terms that the clients' own targets take from this one.

        Args:
            uses: The quantities that the scheme declares.

        Returns:
            The shared terms, to be passed from one compiled call to the next.
        """
        if TILTED not in uses:
            return SharedTerms(self.blocks)
        offset, origin = self.centred
        common = self._spec.site.common_score(self._received, self.blocks, offset)
        return SharedTerms(self.blocks, offset, origin, common)


class Target:
    """One client's target at the particles of the broadcast."""

    def __init__(self, spec: TargetSpec, terms: SharedTerms, key: Array, state: State, shard: Shard, rows: int):
        """
        Args:
            spec: Model, site, temperature and kernel.
            terms: What the broadcast alone decides.
            key: The random key of this report.
            state: The client's state.
            shard: The client's rows.
            rows: How many rows, drawn at random, stand for the shard; 0 takes all of them.
        """
        self.kernel, self.rows = spec.kernel, shard.rows
        self._spec, self._terms, self._state = spec, terms, state
        self._key, self._shard, self._count = key, shard, rows

    @property
    def blocks(self) -> Blocks:
        """The particles, in the model's blocks."""
        return self._terms.blocks

    @cached_property
    def batch(self) -> Batch:
        """The rows that this report looks at, with weights that make them stand for the whole shard."""
        if self._count:
            return minibatch(self._shard, shuffled(self._key, self._shard), 0, self._count)
        return whole(self._shard)

    @cached_property
    def log_likelihood(self) -> Array:
        """log p_k at every particle, N numbers: -L_k / alpha."""
        batch, spec = self.batch, self._spec
        return spec.model.log_likelihood(self.blocks, batch.x, batch.y, batch.weights / spec.temperature)

    @cached_property
    def loss(self) -> Array:
        """The negative log-likelihood of a row, averaged over rows and particles, not tempered."""
        batch = self.batch
        total = self._spec.model.log_likelihood(self.blocks, batch.x, batch.y, batch.weights)
        return -jnp.mean(total) / jnp.sum(batch.weights)

    @cached_property
    def row_losses(self) -> Array:
        """The negative log-likelihood of every row of the batch at every particle, rows x N, not tempered.

        Padding has weight zero in ``batch.weights``. The scheme must declare ``needs_row_losses``.
        """
        batch, model, blocks = self.batch, self._spec.model, self.blocks
        return -row_log_likelihoods(model, blocks, batch.x, batch.y)

    @cached_property
    def gradient_norm(self) -> Array:
        """The norm of the client's gradient, of its whole loss: the root mean square over particles."""
        squares = sum(jnp.sum(block**2, axis=1) for block in self.likelihood_score)
        return jnp.sqrt(jnp.mean(squares))

    @cached_property
    def mean_gradient(self) -> Array:
        """The gradient of the mean (tempered) loss of a row at every particle, N x d."""
        return -jnp.concatenate(self.likelihood_score, axis=1) / jnp.sum(self.batch.weights)

    @cached_property
    def likelihood_score(self) -> Blocks:
        """The gradient of log p_k at every particle."""
        batch, spec = self.batch, self._spec
        return spec.model.likelihood_score(self.blocks, batch.x, batch.y, batch.weights / spec.temperature)

    @cached_property
    def prior_score(self) -> Blocks:
        """The gradient of log p0 at every particle."""
        return self._spec.model.prior_score(self.blocks)

    @cached_property
    def site_score(self) -> Blocks:
        """The gradient of log t_k at every particle, for sites that have one."""
        score = self._spec.site.site_score
        assert score is not None, "the config refuses schemes that need a site score where sites have none"
        return score(self.blocks, self._state)

    @cached_property
    def cavity_score(self) -> Blocks:
        """The gradient of log(q / t_k) with the prior in it. The scheme must declare ``TILTED``."""
        return jax.tree.map(jnp.add, self._terms.common_score, self._own_score())

    @cached_property
    def tilted_score(self) -> Blocks:
        """The gradient of log p~_k at every particle. The scheme must declare ``TILTED``."""
        terms = (self.likelihood_score, self._terms.common_score, self._own_score())
        return jax.tree.map(lambda *parts: sum(parts), *terms)

    def _own_score(self) -> Blocks:
        terms = self._terms
        return self._spec.site.own_score(terms.blocks, terms.offset, terms.origin, self._state)
