"""Bayesian logistic regression (Gershman et al. 2012): theta = [w, log xi], w | xi ~ N(0, 1/xi), xi ~ Gamma(a, b).

Other priors of the scale xi^(-1/2) have names of their own (``scale_priors``).
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field, model_validator

from fedstein.models.base import (
    Blocks,
    GaussianGiven,
    Glm,
    Model,
    ModelKind,
    ModelSettings,
    ModelTraits,
    Units,
    check_start,
    log_mean_exp,
)
from fedstein.models.scale_priors import ScalePrior
from fedstein.settings import PositiveFloat

STARTS = ("prior", "wide")


class BlrSettings(ModelSettings):
    """Settings of Bayesian logistic regression."""

    kind: str = "blr"
    prior: Literal["gamma", "half_cauchy", "half_normal"] = Field(
        "gamma",
        description="The prior of the weights' precision xi: Gamma(prior_shape, prior_rate), or a half-Cauchy or "
        "half-normal prior of their standard deviation xi^(-1/2).",
    )
    prior_shape: PositiveFloat = Field(
        1.0, description="Shape a of the prior xi ~ Gamma(a, b) of the weights' precision."
    )
    prior_rate: PositiveFloat = Field(0.01, description="Rate b of that prior: the mean of xi is a / b.")
    prior_scale: PositiveFloat = Field(1.0, description="Scale of the half-Cauchy or half-normal prior.")
    start: Literal["prior", "wide"] = Field(
        "wide",
        description="Where particles start: drawn from the prior, or with weights of standard deviation about 10, as "
        "in the DSVGD authors' code.",
    )

    @model_validator(mode="after")
    def _prior_has_its_own_keys(self) -> BlrSettings:
        """A key that the chosen prior does not have is refused, and not ignored."""
        if self.prior == "gamma" and self.prior_scale != 1.0:
            raise ValueError(
                "prior_scale is for prior = 'half_cauchy' or 'half_normal'; a Gamma prior has a shape and a rate"
            )
        if self.prior != "gamma" and (self.prior_shape, self.prior_rate) != (1.0, 0.01):
            raise ValueError(f"prior_shape and prior_rate are for prior = 'gamma'; {self.prior!r} has prior_scale")
        return self


def blr(
    features: int,
    *,
    prior: str = "gamma",
    prior_shape: float = 1.0,
    prior_rate: float = 0.01,
    prior_scale: float = 1.0,
    start: str = "prior",
) -> Model:
    """Build a Bayesian logistic regression for the labels 0 and 1.

    There is one weight for each feature and one for the intercept, whose column ``prepare`` appends. The prior is
    xi ~ Gamma(prior_shape, prior_rate) with E[xi] = shape / rate, and w | xi ~ N(0, 1/xi); or the standard deviation
    xi^(-1/2) has a half-Cauchy or half-normal prior.

    Args:
        features: The number of features.
        prior: ``"gamma"``, ``"half_cauchy"`` or ``"half_normal"``.
        prior_shape: The shape of the Gamma prior of xi.
        prior_rate: The rate of the Gamma prior of xi.
        prior_scale: The scale of the half-Cauchy or half-normal prior.
        start: The distribution of the initial particles. "prior" is the prior. "wide" draws xi with the rate
            1 / prior_rate, which is the other reading of the paper's Gamma(1, 0.01): the initial weights then have a
            standard deviation of about 10, as in the code of the DSVGD authors. The prior of the target is the same
            in both cases.

    Returns:
        The model, with theta = [w, log xi].

    Raises:
        ValueError: If ``start`` or ``prior`` is unknown.
    """
    check_start(start, STARTS)
    weights = features + 1
    scale_prior = ScalePrior(prior, prior_shape, prior_rate, prior_scale).check()

    def init(key: Array, n: int) -> Array:
        key_xi, key_w = jax.random.split(key)
        xi = scale_prior.draw(key_xi, n, wide=start == "wide")
        w = jax.random.normal(key_w, (n, weights)) / jnp.sqrt(xi)
        return jnp.concatenate([w, jnp.log(xi)], axis=1)

    def log_prior(blocks: Blocks) -> Array:
        w, log_xi = blocks[0], blocks[1][:, 0]
        gaussian = 0.5 * weights * log_xi - 0.5 * jnp.exp(log_xi) * jnp.sum(w * w, axis=1)
        return gaussian + scale_prior.log_density(log_xi)

    def log_likelihood(blocks: Blocks, x: Array, y: Array, row_weights: Array) -> Array:
        logits = x @ blocks[0].T  # rows x N
        signs = (2 * y - 1).astype(x.dtype)[:, None]
        return row_weights @ jax.nn.log_sigmoid(signs * logits)

    def predict(blocks: Blocks, x: Array) -> Array:
        logits = blocks[0] @ x.T  # N x rows
        return jnp.stack([log_mean_exp(jax.nn.log_sigmoid(-logits)), log_mean_exp(jax.nn.log_sigmoid(logits))], axis=1)

    def variances(blocks: Blocks, x: Array) -> Array:
        p = jax.nn.sigmoid(x @ blocks[0].T)  # rows x N
        return p * (1 - p)

    def diagonal_curvature(blocks: Blocks, x: Array, row_weights: Array, key: Array, samples: int) -> Blocks:
        spread = variances(blocks, x)
        if samples:  # the expectation of (y - p)^2 over labels of the model is p (1 - p)
            p = jax.nn.sigmoid(x @ blocks[0].T)
            drawn = jax.random.uniform(key, (samples, *p.shape), p.dtype) < p
            spread = jnp.mean((drawn - p) ** 2, axis=0)
        return (row_weights[:, None] * spread).T @ (x * x), jnp.zeros_like(blocks[1])

    def full_curvature(blocks: Blocks, x: Array, row_weights: Array) -> Array:
        share = jnp.full((blocks[0].shape[0],), 1 / blocks[0].shape[0], x.dtype)
        of_weights = x.T @ ((row_weights * (variances(blocks, x) @ share))[:, None] * x)
        return jnp.pad(of_weights, ((0, 1), (0, 1)))  # the likelihood does not depend on xi

    return Model(
        name="blr",
        task="classification",
        widths=(weights, 1),
        init=init,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        predict=predict,
        prepare=lambda x: np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1),
        kde_dim=weights,
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        glm=Glm(lambda f, y, extra: jax.nn.log_sigmoid((2 * y - 1).astype(f.dtype) * f[0])),
        gaussian_given=GaussianGiven(0, lambda blocks: jnp.exp(blocks[1])),
        input_block=0,
        features=features,
        classes=2,
        parameter_names=lambda names: (*names, "intercept", "log xi"),
        units=Units(),
    )


BLR = ModelKind(
    name="blr",
    about="Bayesian logistic regression, two classes, theta = [w, log xi]",
    task="classification",
    settings=BlrSettings,
    build=lambda features, classes, settings: blr(features, **settings.model_dump(exclude={"kind"})),
    traits=ModelTraits(0.05, 1e-9, 0.05, "full", "reference", "as_written", moved=1),
    classes=2,
)
