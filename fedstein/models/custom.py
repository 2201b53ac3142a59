"""A statistician's own model: functions of one parameter vector, batched over particles here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, log_mean_exp

TASKS = ("classification", "regression")
LIKELIHOODS = ("categorical", "gaussian", "other")
TARGETS = ("real", "count")


@dataclass(frozen=True, eq=False)
class OwnFunctions:
    """A user's functions of one theta, batched over particles. Its methods can be pickled if the functions can."""

    name: str
    dim: int
    task: str
    classes: int
    log_prior: Callable[[Array], Array]
    log_likelihood: Callable[[Array, Array, Array], Array]
    init: Callable[[Array], Array]
    predict: Callable[[Array, Array], Array]
    sample: Callable[[Array, Array, Array], Array] | None

    def returned(self, function: str, got: Any, expected: tuple[int | None, ...], meaning: str) -> Array:
        """``got`` (with a leading axis of particles), unless its shape is not the expected one."""
        shape = tuple(jnp.shape(got))[1:]
        right = len(shape) == len(expected) and all(e in (None, s) for e, s in zip(expected, shape, strict=True))
        if not right:
            wanted = f"({', '.join('classes' if e is None else str(e) for e in expected)}{',' * (len(expected) == 1)})"
            raise InputError(
                f"custom model {self.name!r}: {function} must return {meaning}: shape {wanted} here, got shape {shape}"
            )
        return got

    def rows_of(self, blocks: Blocks, x: Array, y: Array) -> Array:
        """N x rows log-likelihoods."""
        found = jax.vmap(self.log_likelihood, (0, None, None))(blocks[0], x, y)
        return self.returned("log_likelihood(theta, x, y)", found, (x.shape[0],), "one value for each row")

    def batched_log_likelihood(self, blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return self.rows_of(blocks, x, y) @ weights

    def batched_log_density(self, blocks: Blocks, x: Array, y: Array) -> Array:
        return self.rows_of(blocks, x, y).T

    def batched_log_prior(self, blocks: Blocks) -> Array:
        return self.returned("log_prior(theta)", jax.vmap(self.log_prior)(blocks[0]), (), "a scalar")

    def batched_init(self, key: Array, n: int) -> Array:
        found = jax.vmap(self.init)(jax.random.split(key, n))
        return self.returned("init(key)", found, (self.dim,), f"one theta of length dim = {self.dim}")

    def batched_predict(self, blocks: Blocks, x: Array) -> Array:
        out = jax.vmap(self.predict, (0, None))(blocks[0], x)
        if self.task == "classification":
            meaning = "rows x classes log-probabilities"
            return log_mean_exp(self.returned("predict(theta, x)", out, (x.shape[0], self.classes or None), meaning))
        meaning = "rows x 2, the mean and minus the log of the variance of y"
        out = self.returned("predict(theta, x)", out, (x.shape[0], 2), meaning)
        return jnp.concatenate([out[..., 0].T, out[..., 1].T], 1)

    def batched_sample(self, key: Array, blocks: Blocks, x: Array) -> Array:
        assert self.sample is not None
        keys = jax.random.split(key, blocks[0].shape[0])
        found = jax.vmap(self.sample, (0, 0, None))(keys, blocks[0], x)
        return self.returned("sample(key, theta, x)", found, (x.shape[0],), "one y for each row").T


def custom(
    dim: int,
    *,
    log_prior: Callable[[Array], Array],
    log_likelihood: Callable[[Array, Array, Array], Array],
    init: Callable[[Array], Array],
    predict: Callable[[Array, Array], Array],
    task: str = "classification",
    classes: int = 0,
    name: str = "custom",
    likelihood: str | None = None,
    sample: Callable[[Array, Array, Array], Array] | None = None,
    normalised: bool = False,
    target: str = "real",
) -> Model:
    """A model from functions of one theta (length ``dim``).

    Args:
        dim: The length of theta.
        log_prior: ``log_prior(theta)`` is a scalar.
        log_likelihood: ``log_likelihood(theta, x, y)`` gives one value for each row.
        init: ``init(key)`` draws one theta.
        predict: ``predict(theta, x)`` gives, for classification, rows x classes log-probabilities; for regression
            rows x 2, the mean and minus the log of the variance of y.
        task: ``"classification"`` or ``"regression"``.
        classes: The number of classes; 0 leaves it to the data.
        name: What messages call the model.
        likelihood: How the curvature takes expectations over y. ``"categorical"`` (the default for classification):
            over all classes. ``"gaussian"``: the likelihood is a Gaussian with the moments that ``predict`` gives.
            ``"other"`` (the default for regression): draws of ``sample``, or the Hessian of the observed rows.
        sample: ``sample(key, theta, x)`` draws one y for each row.
        normalised: Whether ``log_likelihood`` has all its constants; the predictive log-density is then made of it,
            instead of a Gaussian with the moments that ``predict`` gives. It counts for regression only.
        target: ``"real"`` or ``"count"``: whether targets of a regression may be standardised.

    Returns:
        The model.

    Raises:
        InputError: An option has an unknown value, or, when a function is called, it returns the wrong shape.
    """
    for what, got, valid in (("task", task, TASKS), ("target", target, TARGETS)):
        if got not in valid:
            raise InputError(f"custom model {name!r}: {what} must be one of {', '.join(valid)}, got {got!r}")
    if likelihood is not None and likelihood not in LIKELIHOODS:
        raise InputError(
            f"custom model {name!r}: likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}"
        )
    if likelihood in LIKELIHOODS[:2] and (likelihood == "categorical") != (task == "classification"):
        raise InputError(f"custom model {name!r}: likelihood {likelihood!r} does not go with task {task!r}")

    own = OwnFunctions(name, dim, task, classes, log_prior, log_likelihood, init, predict, sample)
    return Model(
        name=name,
        task=task,
        widths=(dim,),
        init=own.batched_init,
        log_prior=own.batched_log_prior,
        log_likelihood=own.batched_log_likelihood,
        predict=own.batched_predict,
        classes=classes,
        likelihood=likelihood or "",
        sample=None if sample is None else own.batched_sample,
        log_density=own.batched_log_density if normalised and task == "regression" else None,
        target=target,
    )
