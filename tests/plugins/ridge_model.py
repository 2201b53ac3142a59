"""A model: logistic regression with a Gaussian prior of known precision."""

import jax
import jax.numpy as jnp
from pydantic import Field

from fedstein.models import Model, ModelKind, ModelSettings, custom


class RidgeSettings(ModelSettings):
    kind: str = "ridge"
    ridge: float = Field(1.0, gt=0, description="Precision of the weights' prior.")


def ridge(features: int, classes: int, settings: RidgeSettings) -> Model:
    def logits(theta: jax.Array, x: jax.Array) -> jax.Array:
        return x @ theta[:-1] + theta[-1]

    return custom(
        features + 1,
        log_prior=lambda theta: -0.5 * settings.ridge * jnp.sum(theta**2),
        log_likelihood=lambda theta, x, y: jax.nn.log_sigmoid((2 * y - 1) * logits(theta, x)),
        init=lambda key: jax.random.normal(key, (features + 1,)) / jnp.sqrt(settings.ridge),
        predict=lambda theta, x: jax.nn.log_sigmoid(logits(theta, x)[:, None] * jnp.array([-1.0, 1.0])),
        classes=2,
        name="ridge",
    )


RIDGE = ModelKind("ridge", "logistic regression, known ridge", "classification", RidgeSettings, ridge, classes=2)
