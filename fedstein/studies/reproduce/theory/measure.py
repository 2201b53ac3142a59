"""The indicators of every candidate before a round, and the true decrease of the free energies by its step.

For client k, the tilted score is s~_k = score(kde of q) - score(kde of local) + score(p0) + score(p_k) on the full
shard, and phi_k is its SVGD direction (the one of Algorithms 1 and 2, not that of Lemma 2). Along T = id + eps * phi_k,
the decrease of two free energies is computed: the local one, whose target is p~_k, and the global one, whose target is
p0 * prod_m p_m.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein import stein
from fedstein.data.shard import Shard, whole
from fedstein.models.base import Model, cut, join
from fedstein.studies.reproduce.theory.free_energy import decrease, field_gradient, log_stretch


class Target(NamedTuple):
    """The parts that the densities depend on besides particles and rows.

    It is hashable, because compiled functions close over it.
    """

    model: Model
    density: str
    kde_bandwidth: float
    temperature: float

    def log_prior(self, points: Array) -> Array:
        """Compute log p0 at every point."""
        return self.model.log_prior(cut(points, self.model.widths))

    def log_likelihood(self, points: Array, shard: Shard) -> Array:
        """Compute the tempered log-likelihood of a client's rows at every point."""
        batch = whole(shard)
        return self.model.log_likelihood(
            cut(points, self.model.widths), batch.x, batch.y, batch.weights / self.temperature
        )

    def log_kde(self, points: Array, centres: Array) -> Array:
        """Compute the log-density of the KDE with these centres at every point."""
        return stein.kde_log_density(points, centres, self.kde_bandwidth, self.density, self._kde_dim)

    def log_tilted(self, points: Array, particles: Array, local: Array, shard: Shard) -> Array:
        """Compute log p~_k. By its definition, the KDEs of q and of the local particles are part of the target."""
        cavity = self.log_kde(points, particles) - self.log_kde(points, local) + self.log_prior(points)
        return cavity + self.log_likelihood(points, shard)

    def likelihood_score(self, points: Array, shard: Shard) -> Array:
        """Compute the tempered likelihood score of a client's rows."""
        batch, blocks = whole(shard), cut(points, self.model.widths)
        return join(self.model.likelihood_score(blocks, batch.x, batch.y, batch.weights / self.temperature))

    def prior_score(self, points: Array) -> Array:
        """Compute the prior score."""
        return join(self.model.prior_score(cut(points, self.model.widths)))

    def cavity_score(self, particles: Array, local: Array) -> Array:
        """Compute score(kde of q) - score(kde of local) + score(p0) at the particles."""

        def score(centres: Array) -> Array:
            return stein.kde_score(particles, centres, self.kde_bandwidth, self.density, self._kde_dim)

        return score(particles) - score(local) + self.prior_score(particles)

    @property
    def _kde_dim(self) -> int:
        return self.model.kde_dim or self.model.dim


class Steps(NamedTuple):
    """The step lengths: a small ``epsilon``, the same for all clients, and for each stride the client's own eps_k.

    With eps_k, the root mean square move of a coordinate equals the stride. The first AdaGrad step moves every
    coordinate by the step size, for every client.
    """

    epsilon: float
    strides: tuple[float, ...]


class Measurement(NamedTuple):
    """The indicators and decreases, with a row for each client. Decreases have a column for each step length."""

    ksd: np.ndarray  # S(q, p~_k): the first indicator of the paper, and the rate of decrease of the local free energy
    hip: np.ndarray  # <phi_k, phi'> of the likelihood scores: the second indicator of the paper
    rate: np.ndarray  # hip(s~_k, s_global): the rate of decrease of the global free energy
    epsilon: np.ndarray  # K x E
    local: np.ndarray  # K x E, decrease of F_k / alpha
    globally: np.ndarray  # K x E, decrease of F / alpha


class _CandidateStep(NamedTuple):
    """The part of one candidate's step that depends on its own shard only."""

    epsilon: Array  # E
    moved: Array  # E x N x d
    stretch: Array  # E x N
    local: Array  # E


def measure_candidates(
    target: Target, steps: Steps, particles: Array, sites: Sequence[Array], shards: Sequence[Shard]
) -> Measurement:
    """Measure all candidates at the same particles.

    Args:
        target: The densities.
        steps: The step lengths.
        particles: N x d.
        sites: The local particles of every client.
        shards: The rows of every client.

    Returns:
        The indicators and the true decreases.
    """
    likelihood = [_likelihood_score(target, particles, shard) for shard in shards]
    tilted = [
        _add(score, _cavity_score(target, particles, local)) for score, local in zip(likelihood, sites, strict=True)
    ]
    everything = _global_score(target, particles, jnp.stack(likelihood))
    taken = [
        _step(target, steps, particles, local, shard, score)
        for local, shard, score in zip(sites, shards, tilted, strict=True)
    ]
    # All points at once, so that one product reads a client's rows, instead of one product for each candidate.
    points = jnp.concatenate([particles, *(step.moved.reshape(-1, particles.shape[1]) for step in taken)])
    log_global = _log_prior(target, points)
    for shard in shards:
        log_global = _add(log_global, _log_likelihood(target, points, shard))
    before, after = log_global[: len(particles)], log_global[len(particles) :]
    after = after.reshape(len(shards), -1, len(particles))
    return Measurement(
        *(
            np.asarray(values, np.float64)
            for values in (
                [stein.ksd(particles, score) for score in tilted],
                stein.mean_hips(particles, likelihood),
                [stein.hip(particles, score, everything) for score in tilted],
                [step.epsilon for step in taken],
                [step.local for step in taken],
                decrease(before, after, jnp.stack([step.stretch for step in taken])),
            )
        )
    )


_add = jax.jit(jnp.add)


@partial(jax.jit, static_argnums=0)
def _likelihood_score(target: Target, particles: Array, shard: Shard) -> Array:
    return target.likelihood_score(particles, shard)


@partial(jax.jit, static_argnums=0)
def _cavity_score(target: Target, particles: Array, local: Array) -> Array:
    return target.cavity_score(particles, local)


@partial(jax.jit, static_argnums=0)
def _global_score(target: Target, particles: Array, likelihood: Array) -> Array:
    return target.prior_score(particles) + jnp.sum(likelihood, axis=0)


@partial(jax.jit, static_argnums=0)
def _log_prior(target: Target, points: Array) -> Array:
    return target.log_prior(points)


@partial(jax.jit, static_argnums=0)
def _log_likelihood(target: Target, points: Array, shard: Shard) -> Array:
    return target.log_likelihood(points, shard)


@partial(jax.jit, static_argnums=0)
def _step(target: Target, steps: Steps, particles: Array, local: Array, shard: Shard, scores: Array) -> _CandidateStep:
    bandwidth = stein.median_bandwidth(stein.squared_distances(particles))
    phi = stein.svgd_direction(particles, scores, bandwidth)
    own = [stride / jnp.sqrt(jnp.mean(phi * phi)) for stride in steps.strides]
    epsilon = jnp.stack([jnp.asarray(steps.epsilon, phi.dtype), *own])
    gradients = jax.vmap(partial(field_gradient, particles=particles, scores=scores, bandwidth=bandwidth))(particles)
    stretch = jax.vmap(partial(log_stretch, gradients))(epsilon)
    moved = particles + epsilon[:, None, None] * phi
    points = jnp.concatenate([particles[None], moved]).reshape(-1, particles.shape[1])
    log_local = target.log_tilted(points, particles, local, shard).reshape(-1, len(particles))
    return _CandidateStep(epsilon, moved, stretch, decrease(log_local[0], log_local[1:], stretch))
