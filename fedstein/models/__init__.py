"""Models: a prior and a likelihood, batched over particles. One file a family; the registry is a plain dict."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.models import blr as _blr
from fedstein.models import bnn as _bnn
from fedstein.models.base import Blocks, Model, join, split
from fedstein.models.blr import blr
from fedstein.models.bnn import bnn_classifier, bnn_regressor
from fedstein.models.custom import custom


class ModelInfo(NamedTuple):
    """How ``model.kind`` is built: ``build(features, classes, **settings)``; the settings with their defaults."""

    build: Callable[..., Model]
    task: str
    settings: dict[str, Any]
    starts: tuple[str, ...]
    step_size: float  # the authors' step sizes and their guards against division by zero
    epsilon: float
    settled_step: float  # with curvature sites and in pooled SVGD, under the cosine schedule: docs/results.md
    structure: str  # of curvature sites
    density: str  # the KDE density that serves it better: docs/results.md has the numbers
    parallel_prior: str  # how Parallel DSVGD's server counts the prior: "divided" where that is proper
    about: str


MODELS: dict[str, ModelInfo] = {
    "blr": ModelInfo(
        lambda features, classes, **settings: blr(features, **settings),
        "classification",
        {"prior_shape": 1.0, "prior_rate": 0.01, "start": "wide"},
        _blr.STARTS,
        0.05,
        1e-9,
        0.05,
        "full",
        "reference",
        "as_written",
        "Bayesian logistic regression, two classes, theta = [w, log xi]",
    ),
    "bnn_classifier": ModelInfo(
        bnn_classifier,
        "classification",
        {"hidden": [100], "prior_precision": math.e, "start": "fan_in"},
        _bnn.STARTS,
        1e-3,
        1e-6,
        4e-3,
        "eigen",
        "log",
        "divided",
        "Bayesian neural network, ReLU layers, softmax",
    ),
    "bnn_regressor": ModelInfo(
        lambda features, classes, **settings: bnn_regressor(features, **settings),
        "regression",
        {"hidden": [50], "prior_precision": math.e, "prior_shape": 1.0, "prior_rate": 0.1, "start": "fan_in"},
        _bnn.STARTS,
        1e-3,
        1e-6,
        4e-3,
        "eigen",
        "log",
        "as_written",
        "Bayesian neural network with Gaussian noise, theta = [W, log gamma]",
    ),
}

__all__ = [
    "MODELS",
    "Blocks",
    "Model",
    "ModelInfo",
    "blr",
    "bnn_classifier",
    "bnn_regressor",
    "custom",
    "join",
    "split",
]
