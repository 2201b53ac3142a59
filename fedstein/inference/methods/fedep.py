"""FedEP (Guo et al. 2023): federated expectation propagation with diagonal Gaussian factors.

    cavity = q / t_k,    tilted = cavity x p_k,    Delta_k = Gaussian(tilted) / q,    t_k <- t_k Delta_k^rho,

rho = 1 / K unless set. The tilted distribution is approximated by natural-gradient variational inference (``inference
= "vi"``), or by its mode and the curvature there (``"laplace"``). The authors also have a scaled identity and MCMC.

Reference: Guo, Greengard, Wang, Gelman, Kim and Xing, "Federated Learning as Variational Inference: A Scalable
Expectation Propagation Approach", ICLR 2023.
"""

from __future__ import annotations

from typing import Literal

import jax
from jax import Array
from pydantic import Field

from fedstein.errors import InputError
from fedstein.inference.factor_method import FactorSettings, adam_rate, factor_method
from fedstein.inference.local_laplace import curvature_at, local_mode
from fedstein.inference.local_vi import Anchor, likelihood_score, natural_vi
from fedstein.inference.methods.base import ClientCountSettings, Method, MethodKind, Training
from fedstein.inference.sites.base import Site
from fedstein.models.base import Model
from fedstein.settings import PositiveFloat, Share


class FedepSettings(FactorSettings, ClientCountSettings):
    """Settings of FedEP."""

    kind: str = "fedep"
    step_size: PositiveFloat = Field(
        0.05, description="Share of a Newton step (inference = 'vi'), or the rate of Adam ('laplace')."
    )
    damping: Share | None = Field(  # type: ignore[assignment]
        None, description="rho, the share of the change that a factor takes; 1 / K without it."
    )
    inference: Literal["vi", "laplace"] = Field("vi", description="How the tilted distribution is approximated.")
    curvature_rate: Share = Field(0.05, description="Weight of a new estimate of the curvature (inference = 'vi').")


def fedep(model: Model, site: Site, settings: FedepSettings) -> Method:
    """Build FedEP.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """
    laplace = settings.inference == "laplace"
    refuse_unused(settings)

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        if laplace:
            mean = local_mode(model, settings, given, cavity, start[0])
            return mean, cavity.precision + curvature_at(model, given, mean, settings.temperature)
        return natural_vi(
            likelihood_score(model, settings, given, settings.temperature),
            cavity,
            start,
            key=jax.random.fold_in(given.key, 1),
            steps=settings.local_steps,
            rate=adam_rate(settings, given),
            curvature_rate=settings.curvature_rate,
            samples=settings.samples,
        )

    rho = settings.damping if settings.damping is not None else 1 / settings.client_count
    points = 1 if laplace else 2 * settings.samples
    return factor_method(model, site, settings, fit, rho=rho, points=points, curvature=laplace)


def refuse_unused(settings: FedepSettings) -> None:
    """Refuse keys of variational inference if Laplace fits are chosen.

    Raises:
        InputError: Such a key has another value than its default.
    """
    for name in ("samples", "curvature_rate"):
        if settings.inference == "laplace" and getattr(settings, name) != type(settings).model_fields[name].default:
            raise InputError(f"algorithm.{name} is not used with algorithm.inference = 'laplace'; leave it out")


FEDEP = MethodKind(
    name="fedep",
    about="federated expectation propagation: a Gaussian factor for each client, fitted to the tilted distribution",
    settings=FedepSettings,
    build=fedep,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
