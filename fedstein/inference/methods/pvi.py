"""Partitioned variational inference (Bui et al. 2018; Ashman et al. 2022) with mean-field Gaussians.

    client:  q' = argmin_q  KL(q || q_server / t_k) - E_q[log p_k]   by reparametrised gradients and Adam,
    factor:  log t_k <- log t_k + rho (log q' - log q_server),       server: q = p0 prod_k t_k.

``updates = "synchronous"``: the clients of a round start from the same q. ``"sequential"``: each starts from what the
one before has left; with one client a round the two are the same.

References: Bui, Nguyen, Swaroop and Turner, "Partitioned Variational Inference", 2018; Ashman et al., "Partitioned
Variational Inference: A Framework for Probabilistic Federated Learning", 2022.
"""

from __future__ import annotations

import jax
from jax import Array
from pydantic import Field

from fedstein.inference.factor_method import FactorSettings, adam_rate, factor_method
from fedstein.inference.local_vi import Anchor, adam_vi, kl_to, likelihood_score
from fedstein.inference.methods.base import Method, MethodKind, Training
from fedstein.inference.sites.base import Site
from fedstein.models.base import Model
from fedstein.settings import PositiveFloat


class PviSettings(FactorSettings):
    """Settings of partitioned variational inference."""

    kind: str = "pvi"
    step_size: PositiveFloat = Field(0.01, description="The rate of Adam.")


def pvi(model: Model, site: Site, settings: PviSettings) -> Method:
    """Build partitioned variational inference.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        return adam_vi(
            likelihood_score(model, settings, given, settings.temperature),
            kl_to(cavity),
            start,
            key=jax.random.fold_in(given.key, 1),
            steps=settings.local_steps,
            rate=adam_rate(settings, given),
            samples=settings.samples,
        )

    return factor_method(model, site, settings, fit)


PVI = MethodKind(
    name="pvi",
    about="partitioned variational inference: a Gaussian factor for each client, fitted by reparametrised gradients",
    settings=PviSettings,
    build=pvi,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
