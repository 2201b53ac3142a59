"""Models from a user's own functions of one parameter vector, which are batched over particles here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, log_mean_exp

TASKS = ("classification", "regression")
LIKELIHOODS = ("categorical", "gaussian", "other")
TARGETS = ("real", "count")
HINTS = {  # explanations of JAX's errors for users who do not know them
    "TracerBoolConversion": "; use jax.numpy.where instead of if",
    "TracerArrayConversion": "; use jax.numpy instead of numpy",
}


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

    def called(self, signature: str, function: Callable[..., Any], batched: Sequence[bool], *arguments: Any) -> Any:
        """The function at every particle. Whatever it raises becomes a sentence with the shapes that it was given."""
        try:
            return jax.vmap(function, tuple(0 if each else None for each in batched))(*arguments)
        except InputError:
            raise
        except Exception as error:
            names = signature.partition("(")[2].rstrip(")").split(", ")
            shapes = [tuple(jnp.shape(a))[each:] for a, each in zip(arguments, batched, strict=True)]
            given = ", ".join(f"{n} of shape {s}" for n, s in zip(names, shapes, strict=True) if n != "key")
            lines = str(error).strip().splitlines()
            hint = next((text for kind, text in HINTS.items() if kind in type(error).__name__), "")
            raise InputError(
                f"custom model {self.name!r}: {signature} failed{' for ' + given if given else ''}: "
                f"{type(error).__name__}: {lines[0] if lines else ''}{hint}"
            ) from error

    def rows_of(self, blocks: Blocks, x: Array, y: Array) -> Array:
        """N x rows log-likelihoods."""
        what = "log_likelihood(theta, x, y)"
        found = self.called(what, self.log_likelihood, (True, False, False), blocks[0], x, y)
        return self.returned(what, found, (x.shape[0],), "one value for each row")

    def batched_log_likelihood(self, blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return self.rows_of(blocks, x, y) @ weights

    def batched_log_density(self, blocks: Blocks, x: Array, y: Array) -> Array:
        return self.rows_of(blocks, x, y).T

    def batched_log_prior(self, blocks: Blocks) -> Array:
        found = self.called("log_prior(theta)", self.log_prior, (True,), blocks[0])
        return self.returned("log_prior(theta)", found, (), "a scalar")

    def batched_init(self, key: Array, n: int) -> Array:
        found = self.called("init(key)", self.init, (True,), jax.random.split(key, n))
        return self.returned("init(key)", found, (self.dim,), f"one theta of length dim = {self.dim}")

    def batched_predict(self, blocks: Blocks, x: Array) -> Array:
        out = self.called("predict(theta, x)", self.predict, (True, False), blocks[0], x)
        if self.task == "classification":
            meaning = "rows x classes log-probabilities"
            return log_mean_exp(self.returned("predict(theta, x)", out, (x.shape[0], self.classes or None), meaning))
        meaning = "rows x 2, the mean and minus the log of the variance of y"
        out = self.returned("predict(theta, x)", out, (x.shape[0], 2), meaning)
        return jnp.concatenate([out[..., 0].T, out[..., 1].T], 1)

    def batched_sample(self, key: Array, blocks: Blocks, x: Array) -> Array:
        assert self.sample is not None
        keys = jax.random.split(key, blocks[0].shape[0])
        found = self.called("sample(key, theta, x)", self.sample, (True, True, False), keys, blocks[0], x)
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
    if not isinstance(dim, Integral) or dim < 1:
        raise InputError(f"custom model {name!r}: dim must be the length of theta, at least 1, got {dim!r}")
    functions = {"log_prior": log_prior, "log_likelihood": log_likelihood, "init": init, "predict": predict}
    for what, function in functions.items():
        if not callable(function):
            raise InputError(f"custom model {name!r}: {what} must be a function, got {type(function).__name__}")
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
