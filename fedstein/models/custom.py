"""A statistician's own model: functions of one parameter vector, batched over particles here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, log_mean_exp

TASKS = ("classification", "regression")
LIKELIHOODS = ("categorical", "gaussian", "other")
TARGETS = ("real", "count")


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

    def returned(function: str, got: Any, expected: tuple[int | None, ...], meaning: str) -> Array:
        """``got`` (with a leading axis of particles), unless its shape is not the expected one."""
        shape = tuple(jnp.shape(got))[1:]
        right = len(shape) == len(expected) and all(e in (None, s) for e, s in zip(expected, shape, strict=True))
        if not right:
            wanted = f"({', '.join('classes' if e is None else str(e) for e in expected)}{',' * (len(expected) == 1)})"
            raise InputError(
                f"custom model {name!r}: {function} must return {meaning}: shape {wanted} here, got shape {shape}"
            )
        return got

    def rows_of(blocks: Blocks, x: Array, y: Array) -> Array:
        found = jax.vmap(log_likelihood, (0, None, None))(blocks[0], x, y)
        return returned("log_likelihood(theta, x, y)", found, (x.shape[0],), "one value for each row")

    def batched_log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return rows_of(blocks, x, y) @ weights

    def batched_log_prior(blocks: Blocks) -> Array:
        return returned("log_prior(theta)", jax.vmap(log_prior)(blocks[0]), (), "a scalar")

    def batched_init(key: Array, n: int) -> Array:
        found = jax.vmap(init)(jax.random.split(key, n))
        return returned("init(key)", found, (dim,), f"one theta of length dim = {dim}")

    def batched_predict(blocks: Blocks, x: Array) -> Array:
        out = jax.vmap(predict, (0, None))(blocks[0], x)
        if task == "classification":
            meaning = "rows x classes log-probabilities"
            return log_mean_exp(returned("predict(theta, x)", out, (x.shape[0], classes or None), meaning))
        meaning = "rows x 2, the mean and minus the log of the variance of y"
        out = returned("predict(theta, x)", out, (x.shape[0], 2), meaning)
        return jnp.concatenate([out[..., 0].T, out[..., 1].T], 1)

    def batched_sample(key: Array, blocks: Blocks, x: Array) -> Array:
        assert sample is not None
        keys = jax.random.split(key, blocks[0].shape[0])
        found = jax.vmap(sample, (0, 0, None))(keys, blocks[0], x)
        return returned("sample(key, theta, x)", found, (x.shape[0],), "one y for each row").T

    return Model(
        name=name,
        task=task,
        widths=(dim,),
        init=batched_init,
        log_prior=batched_log_prior,
        log_likelihood=batched_log_likelihood,
        predict=batched_predict,
        classes=classes,
        likelihood=likelihood or "",
        sample=None if sample is None else batched_sample,
        log_density=(lambda blocks, x, y: rows_of(blocks, x, y).T) if normalised and task == "regression" else None,
        target=target,
    )
