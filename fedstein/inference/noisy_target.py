"""The server's estimate of a client's target in a private run, computed from noisy releases without asking any client.

Client k's releases (``fedstein.inference.noisy_sites``, whose notation this is) give the server an estimate of the
client's score at every theta, and the client's noisy site t_k, expanded at the posterior mean m:

    score of p_k:   (1 / v_k) sum_t [g_kt + A_k(theta_kt)] - A_k(theta),
    score of t_k:   Lambda_k (Lambda_k + S_k)^-1 (r_k + Lambda_k m) - Lambda_k (Lambda_k + S_k)^-1 Lambda_k theta.

A_k and Lambda_k are sums over synthetic rows with the client's own noisy moments, S_k = s^2 / v_k I, and r_k is the
first line at m. The cavity is prior times all sites without t_k. Selection schemes take this in place of a
``Target``, so that their formulas stay where they are. It is post-processing of releases: it costs no budget.
"""

from __future__ import annotations

from functools import cached_property

import jax.numpy as jnp
import numpy as np

from fedstein.inference.noisy_sites import Scales, expand_at, observe
from fedstein.inference.sites.base import Arrays, Own
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Blocks, cut, join
from fedstein.privacy.mechanism import Family


class NoisyTarget:
    """One client's target as its releases describe it, at the server's particles."""

    def __init__(self, spec: TargetSpec, family: Family, scales: Scales, server: Arrays, released: Own):
        """
        Args:
            spec: Model, site, temperature and kernel.
            family: The likelihood.
            scales: The noise of a release.
            server: The server's state: the particles, the point m, and the sites' sum with the noise in it.
            released: The releases of the client; at least one.
        """
        self.kernel, self._spec, self._family, self._server = spec.kernel, spec, family, server
        self._width = spec.model.widths[0]
        self._observed = observe({0: released}, self._width // family.predictors, scales)
        self._particles = np.asarray(server["particles"], np.float64)

    @cached_property
    def blocks(self) -> Blocks:
        """The particles, in the model's blocks."""
        return self._spec.model.split(jnp.asarray(self._server["particles"]))

    @cached_property
    def likelihood_score(self) -> Blocks:
        """The estimate of the gradient of log p_k at every particle."""
        return self._blocks(self._observed.score(self._family, self._particles[:, : self._width]))

    @cached_property
    def site_score(self) -> Blocks:
        """The gradient of log t_k at every particle."""
        eta, precision = expand_at(self._observed, self._family, np.asarray(self._server["point"])[: self._width])
        return self._blocks(eta - self._particles[:, : self._width] @ precision)

    @cached_property
    def prior_score(self) -> Blocks:
        """The gradient of log p0 at every particle."""
        return self._spec.model.prior_score(self.blocks)

    @cached_property
    def cavity_score(self) -> Blocks:
        """The gradient of log(q / t_k) with the prior in it."""
        everybody = np.asarray(self._server["eta"]) - self._particles @ np.asarray(self._server["precision"])
        together = self._blocks(everybody)
        return tuple(p + a - t for p, a, t in zip(self.prior_score, together, self.site_score, strict=True))

    @cached_property
    def tilted_score(self) -> Blocks:
        """The gradient of log (q / t_k) p_k at every particle."""
        return tuple(a + b for a, b in zip(self.likelihood_score, self.cavity_score, strict=True))

    def _blocks(self, scores: np.ndarray) -> Blocks:
        """Scores of the coefficients, or of all parameters, as blocks of the particles' precision."""
        whole = np.zeros(self._particles.shape)
        whole[:, : scores.shape[1]] = scores
        return cut(jnp.asarray(whole, join(self.blocks).dtype), self._spec.model.widths)
