"""Models: a prior and a likelihood, batched over particles. Each family has its own file; ``MODELS`` names them."""

from fedstein.models.base import Blocks, GaussianGiven, Glm, Model, ModelKind, ModelSettings, ModelTraits, join, split
from fedstein.models.blr import BLR, BlrSettings, blr
from fedstein.models.bnn import BNN_CLASSIFIER, BNN_REGRESSOR, bnn_classifier, bnn_regressor
from fedstein.models.checks import check_model
from fedstein.models.custom import custom
from fedstein.models.from_equinox import from_equinox
from fedstein.models.from_flax import from_flax
from fedstein.models.from_numpyro import from_numpyro
from fedstein.models.from_pytree import from_pytree
from fedstein.models.from_torch import from_torch
from fedstein.models.linear_regression import LINEAR, linear_regression
from fedstein.models.negative_binomial_regression import NEGATIVE_BINOMIAL, negative_binomial_regression
from fedstein.models.poisson_regression import POISSON, poisson_regression
from fedstein.models.random_intercept import (
    RANDOM_LINEAR,
    RANDOM_LOGISTIC,
    random_intercept_linear,
    random_intercept_logistic,
)
from fedstein.models.softmax_regression import SOFTMAX, softmax_regression
from fedstein.registry import Registry

MODELS: Registry[ModelKind] = Registry("model.kind", "fedstein.models", ModelKind)
for _kind in (
    BLR,
    BNN_CLASSIFIER,
    BNN_REGRESSOR,
    LINEAR,
    POISSON,
    NEGATIVE_BINOMIAL,
    SOFTMAX,
    RANDOM_LOGISTIC,
    RANDOM_LINEAR,
):
    MODELS.register(_kind)

__all__ = [
    "MODELS",
    "Blocks",
    "BlrSettings",
    "GaussianGiven",
    "Glm",
    "Model",
    "ModelKind",
    "ModelSettings",
    "ModelTraits",
    "blr",
    "bnn_classifier",
    "bnn_regressor",
    "check_model",
    "custom",
    "from_equinox",
    "from_flax",
    "from_numpyro",
    "from_pytree",
    "from_torch",
    "join",
    "linear_regression",
    "negative_binomial_regression",
    "poisson_regression",
    "random_intercept_linear",
    "random_intercept_logistic",
    "softmax_regression",
    "split",
]
