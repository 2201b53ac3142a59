"""A model of one's own whose functions can be imported, and so pickled."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedstein.models import custom


def log_prior(theta):
    return -0.5 * theta @ theta


def log_likelihood(theta, x, y):
    return -0.5 * (y - x @ theta) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def init(key):
    return jax.random.normal(key, (2,))


def predict(theta, x):
    return jnp.stack([x @ theta, jnp.zeros(len(x))], axis=1)


def model():
    return custom(
        2,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        init=init,
        predict=predict,
        task="regression",
        likelihood="gaussian",
        name="plane",
    )
