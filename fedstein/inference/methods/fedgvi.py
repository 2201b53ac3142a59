"""FedGVI (Mildner et al. 2025): partitioned variational inference with a robust loss and a Renyi divergence.

    client:  q' = argmin_q  D_alpha(q || q_server / t_k) + E_q[ sum_i (1 - p(y_i | x_i, theta)^delta) / delta ],

p the probability of the observed label, so that a row which the model thinks impossible costs at most 1 / delta. As
delta goes to 0 the loss is the log loss, and at alpha = 1 the divergence is KL: FedGVI is then PVI. With sds s of q
and S of the cavity, means m and M, and v = alpha S^2 + (1 - alpha) s^2,

    D_alpha = sum [ log(S / s) + log(S^2 / v) / (2 (alpha - 1)) + alpha (m - M)^2 / (2 v) ].

For alpha > 1 it is infinite if v <= 0, that is if q is much wider than the cavity; v is kept above S^2 / 100. The
robust loss is one of probabilities, so regression is refused.

Reference: Mildner, Hamelijnck, Giampouras and Damoulas, "Federated Generalised Variational Inference", ICML 2025.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.errors import InputError
from fedstein.inference.factor_method import FactorSettings, adam_rate, factor_method
from fedstein.inference.local_sgd import batches
from fedstein.inference.local_vi import Anchor, Regular, Score, adam_vi, kl_to
from fedstein.inference.methods.base import Method, MethodKind, Training
from fedstein.inference.sites.base import Site
from fedstein.inference.target import row_log_likelihoods
from fedstein.models.base import Model, join
from fedstein.settings import PositiveFloat


class FedgviSettings(FactorSettings):
    """Settings of FedGVI."""

    kind: str = "fedgvi"
    step_size: PositiveFloat = Field(0.01, description="The rate of Adam.")
    delta: float = Field(0.5, gt=0, le=1, description="Robustness: a row costs at most 1 / delta.")
    alpha: PositiveFloat = Field(2.5, description="Order of the Renyi divergence; 1 is KL.")


def fedgvi(model: Model, site: Site, settings: FedgviSettings) -> Method:
    """Build FedGVI.

    Args:
        model: A model for classification whose likelihood is a product over rows.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.

    Raises:
        InputError: The model has no probabilities of labels.
    """
    if model.family != "categorical" or model.whole_shard:
        raise InputError(
            f"algorithm.kind = 'fedgvi' needs the probability of each row's label, and model {model.name!r} has none; "
            "use a model for classification without client effects, or algorithm.kind = 'pvi'"
        )

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        return adam_vi(
            robust_score(model, settings, given),
            renyi_to(cavity, settings.alpha),
            start,
            key=jax.random.fold_in(given.key, 1),
            steps=settings.local_steps,
            rate=adam_rate(settings, given),
            samples=settings.samples,
        )

    return factor_method(model, site, settings, fit)


def robust_score(model: Model, settings: FedgviSettings, given: Training) -> Score:
    """The gradient of sum_i (p_i^delta - 1) / delta over the batch of a step, at every draw."""
    batch_of = batches(given, settings.batch_size)

    def score(step: Array, theta: Array) -> Array:
        batch = batch_of(step)

        def gain(blocks: tuple[Array, ...]) -> Array:
            powers = jnp.exp(settings.delta * row_log_likelihoods(model, blocks, batch.x, batch.y))
            return jnp.sum(batch.weights @ (powers - 1)) / (settings.delta * settings.temperature)

        return join(jax.grad(gain)(model.split(theta)))

    return score


def renyi_to(cavity: Anchor, alpha: float) -> Regular:
    """D_alpha(q || cavity); KL at alpha = 1, and if the cavity is not a density."""
    if alpha == 1:
        return kl_to(cavity)
    proper = cavity.precision > 0
    precision = jnp.where(proper, cavity.precision, 1.0)
    centre, variance = cavity.eta / precision, 1 / precision

    def regular(mean: Array, log_sd: Array) -> Array:
        mixed = jnp.maximum(alpha * variance + (1 - alpha) * jnp.exp(2 * log_sd), 0.01 * variance)
        spread = jnp.log(variance / mixed) / (2 * (alpha - 1)) + 0.5 * jnp.log(variance) - log_sd
        renyi = spread + alpha * (mean - centre) ** 2 / (2 * mixed)
        kl = 0.5 * cavity.precision * (mean**2 + jnp.exp(2 * log_sd)) - cavity.eta * mean - log_sd
        return jnp.sum(jnp.where(proper, renyi, kl))

    return regular


FEDGVI = MethodKind(
    name="fedgvi",
    about="PVI with a loss that is robust against wrong labels and a Renyi divergence; classification",
    settings=FedgviSettings,
    build=fedgvi,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
