"""Mistakes in a model of one's own: the message names the function as the user wrote it, its arguments and shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.models import check_model, custom

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
GOOD = {
    "log_prior": lambda theta: -0.5 * theta @ theta,
    "log_likelihood": lambda theta, x, y: jax.nn.log_sigmoid(jnp.where(y == 1, 1, -1) * (x @ theta)),
    "init": lambda key: jax.random.normal(key, (3,)),
    "predict": lambda theta, x: jax.nn.log_sigmoid(jnp.stack([-x @ theta, x @ theta], axis=1)),
}


@pytest.mark.parametrize(
    ("function", "wrong", "words"),
    [
        ("log_prior", lambda t: -0.5 * t**2, r"log_prior\(theta\) must return a scalar.* got shape \(3,\)"),
        ("log_prior", lambda t: t["a"], r"log_prior\(theta\) failed for theta of shape \(3,\): TypeError"),
        (
            "log_likelihood",
            lambda t, x, y: jnp.sum(x @ t),
            r"one value for each row: shape \(8,\) here, got shape \(\)",
        ),
        (
            "log_likelihood",
            lambda t, x, y: x @ t[:2],
            r"log_likelihood\(theta, x, y\) failed for theta of shape \(3,\), x of shape \(8, 3\), y of shape \(8,\)",
        ),
        ("log_likelihood", lambda t, x, y: x @ t if t[0] > 0 else -x @ t, r"jax\.numpy\.where instead of if"),
        ("log_likelihood", lambda t, x, y: np.log(np.asarray(x) @ np.asarray(t)), r"use jax\.numpy instead of numpy"),
        ("init", lambda key: jnp.zeros(4), r"init\(key\) must return one theta of length dim = 3.* got shape \(4,\)"),
        ("init", lambda key, n: jnp.zeros((n, 3)), r"init\(key\) failed: TypeError: .*missing 1 required"),
        ("predict", lambda t, x: x @ t, r"predict\(theta, x\) must return rows x classes log-prob.* got shape \(8,\)"),
        (
            "predict",
            lambda t, x: x @ t[:1],
            r"predict\(theta, x\) failed for theta of shape \(3,\), x of shape \(8, 3\)",
        ),
    ],
)
def test_shape_mistakes_name_function_argument_and_shape(function, wrong, words):
    with pytest.raises(InputError, match=words) as caught:
        check_model(custom(3, **{**GOOD, function: wrong}, name="mine"), X, Y, thorough=False)
    assert "custom model 'mine'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_functions_without_a_mistake_pass():
    check_model(custom(3, **GOOD), X, Y, thorough=False)


@pytest.mark.parametrize(
    ("dim", "change", "words"),
    [
        (0, {}, "dim must be the length of theta"),
        (2.5, {}, "dim must be the length of theta"),
        (3, {"predict": None}, "predict must be a function, got NoneType"),
    ],
)
def test_what_is_no_function_or_length_is_refused_at_once(dim, change, words):
    with pytest.raises(InputError, match=words):
        custom(dim, **{**GOOD, **change})
