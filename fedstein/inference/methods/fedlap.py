"""FedLap and FedLap-Cov (Swaroop, Khan and Doshi-Velez 2025): ADMM's dual variables as Laplace factors of the clients.

    client:  m_k = argmin_theta  -log p_k(theta) + log t_k(theta) - log q(theta),   H_k: curvature of -log p_k at m_k,
    factor:  V_k <- (1 - rho) V_k + rho H_k,     v_k moves by rho so that t_k has the slope of p_k at m_k,
    server:  q = p0 prod_k t_k,   t_k = exp(v_k . theta - theta' diag(V_k) theta / 2).

``covariance = false`` is FedLap: V_k stays zero, the precision of q is the prior's, and v_k <- v_k + rho P (m_k - m),
which is ADMM. FedLap-Cov is expectation propagation with Laplace fits (``fedep`` with ``inference = "laplace"``)
under another name; the two differ in their default damping.

Reference: Swaroop, Khan and Doshi-Velez, "Connecting Federated ADMM to Bayes", ICLR 2025.
"""

from __future__ import annotations

from jax import Array
from pydantic import Field

from fedstein.inference.factor_method import FactorSettings, factor_method
from fedstein.inference.local_laplace import curvature_at, local_mode
from fedstein.inference.local_vi import Anchor
from fedstein.inference.methods.base import Method, MethodKind, Training
from fedstein.inference.sites.base import Site
from fedstein.models.base import Model
from fedstein.settings import Positive, PositiveFloat


class FedlapSettings(FactorSettings):
    """Settings of FedLap and FedLap-Cov."""

    kind: str = "fedlap"
    step_size: PositiveFloat = Field(0.01, description="The rate of Adam.")
    samples: Positive = Field(1, le=1, description="Draws in a step: always one, because steps are taken at the mean.")
    covariance: bool = Field(True, description="Whether factors have curvature (FedLap-Cov) or slopes alone (FedLap).")


def fedlap(model: Model, site: Site, settings: FedlapSettings) -> Method:
    """Build FedLap or FedLap-Cov.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        mean = local_mode(model, settings, given, cavity, start[0])
        if not settings.covariance:
            return mean, cavity.precision
        return mean, cavity.precision + curvature_at(model, given, mean, settings.temperature)

    return factor_method(model, site, settings, fit, points=1, curvature=settings.covariance)


FEDLAP = MethodKind(
    name="fedlap",
    about="federated Laplace approximations: ADMM whose dual variables are Gaussian factors",
    settings=FedlapSettings,
    build=fedlap,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
