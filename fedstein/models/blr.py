"""Bayesian logistic regression (Gershman et al. 2012): theta = [w, log xi], w | xi ~ N(0, 1/xi), xi ~ Gamma(a, b)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.models.base import Blocks, Model, gamma_draws, gamma_log_density, known_start, log_mean_exp

STARTS = ("prior", "wide")


def blr(features: int, *, prior_shape: float = 1.0, prior_rate: float = 0.01, start: str = "prior") -> Model:
    """Labels 0 and 1, one weight for each feature and one for the intercept, which ``prepare`` appends.

    ``prior_rate`` is a rate: E[xi] = shape / rate. ``start = "wide"`` draws the initial particles (not the prior of the
    target) with rate 1 / prior_rate, the other reading of the paper's Gamma(1, 0.01): weights start at a standard
    deviation of about 10, as in the DSVGD authors' code.
    """
    known_start(start, STARTS)
    weights = features + 1

    def init(key: Array, n: int) -> Array:
        key_xi, key_w = jax.random.split(key)
        rate = prior_rate if start == "prior" else 1 / prior_rate
        xi = jnp.maximum(gamma_draws(key_xi, prior_shape, n) / rate, 1e-6)
        w = jax.random.normal(key_w, (n, weights)) / jnp.sqrt(xi)
        return jnp.concatenate([w, jnp.log(xi)], axis=1)

    def log_prior(blocks: Blocks) -> Array:
        w, log_xi = blocks[0], blocks[1][:, 0]
        gaussian = 0.5 * weights * log_xi - 0.5 * jnp.exp(log_xi) * jnp.sum(w * w, axis=1)
        return gaussian + gamma_log_density(log_xi, prior_shape, prior_rate)

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
        if samples:  # (y - p)^2 for labels drawn from the model, whose mean is p (1 - p)
            p = jax.nn.sigmoid(x @ blocks[0].T)
            drawn = jax.random.uniform(key, (samples, *p.shape), p.dtype) < p
            spread = jnp.mean((drawn - p) ** 2, axis=0)
        return (row_weights[:, None] * spread).T @ (x * x), jnp.zeros_like(blocks[1])

    def full_curvature(blocks: Blocks, x: Array, row_weights: Array) -> Array:
        share = jnp.full((blocks[0].shape[0],), 1 / blocks[0].shape[0], x.dtype)
        of_weights = x.T @ ((row_weights * (variances(blocks, x) @ share))[:, None] * x)
        return jnp.pad(of_weights, ((0, 1), (0, 1)))  # the likelihood does not know xi

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
        input_block=0,
        features=features,
        classes=2,
    )
