"""Bayesian neural networks with ReLU layers: classification (softmax) and regression (Gaussian noise, log gamma).

The weights have the prior N(0, 1/lambda). Layers are evaluated for all particles at once; the first one as a single
(N*H) x D matrix product, because a batched product per particle is many times slower on a CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, gamma_draws, gamma_log_density, join, known_start, log_mean_exp

STARTS = ("fan_in", "prior")


def bnn_classifier(
    features: int,
    classes: int,
    *,
    hidden: Sequence[int] = (100,),
    prior_precision: float = math.e,
    start: str = "fan_in",
) -> Model:
    """Categorical likelihood over ``classes``; theta = [W1, b1, W2, b2, ...], each W stored outputs x inputs."""
    known_start(start, STARTS)
    sizes = (features, *hidden, classes)

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        log_probs = jax.nn.log_softmax(forward(blocks, sizes, x), axis=-1)  # N x rows x classes
        chosen = jnp.take_along_axis(log_probs, y[None, :, None], axis=-1)[..., 0]
        return chosen @ weights

    def predict(blocks: Blocks, x: Array) -> Array:
        return log_mean_exp(jax.nn.log_softmax(forward(blocks, sizes, x), axis=-1))

    return Model(
        name="bnn_classifier",
        task="classification",
        widths=layer_widths(sizes),
        init=lambda key, n: join(init_layers(key, n, sizes, start, prior_precision)),
        log_prior=lambda blocks: gaussian_log_prior(blocks, prior_precision),
        log_likelihood=log_likelihood,
        predict=predict,
        prior_curvature=prior_precision,
        linear_prior_score=-prior_precision,
        features=features,
        classes=classes,
    )


def bnn_regressor(
    features: int,
    *,
    hidden: Sequence[int] = (50,),
    prior_precision: float = math.e,
    prior_shape: float = 1.0,
    prior_rate: float = 0.1,
    start: str = "fan_in",
) -> Model:
    """y ~ N(f(x; W), 1/gamma), gamma ~ Gamma(shape, rate); theta = [W1, b1, ..., log gamma]."""
    known_start(start, STARTS)
    sizes = (features, *hidden, 1)

    def init(key: Array, n: int) -> Array:
        key_layers, key_gamma = jax.random.split(key)
        gamma = jnp.maximum(gamma_draws(key_gamma, prior_shape, n) / prior_rate, 1e-6)
        return join((*init_layers(key_layers, n, sizes, start, prior_precision), jnp.log(gamma)))

    def log_prior(blocks: Blocks) -> Array:
        noise = gamma_log_density(blocks[-1][:, 0], prior_shape, prior_rate)
        return gaussian_log_prior(blocks[:-1], prior_precision) + noise

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        mean, log_gamma = forward(blocks[:-1], sizes, x)[..., 0], blocks[-1]  # N x rows, N x 1
        log_density = 0.5 * (log_gamma - math.log(2 * math.pi) - jnp.exp(log_gamma) * (y[None, :] - mean) ** 2)
        return log_density @ weights

    def predict(blocks: Blocks, x: Array) -> Array:
        mean = forward(blocks[:-1], sizes, x)[..., 0]
        return jnp.concatenate([mean.T, jnp.broadcast_to(blocks[-1].T, mean.T.shape)], axis=1)

    return Model(
        name="bnn_regressor",
        task="regression",
        widths=(*layer_widths(sizes), 1),
        init=init,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        predict=predict,
        features=features,
    )


def layer_widths(sizes: Sequence[int]) -> tuple[int, ...]:
    """Widths of [W1, b1, W2, b2, ...]."""
    return tuple(w for a, b in itertools.pairwise(sizes) for w in (a * b, b))


def init_layers(key: Array, n: int, sizes: Sequence[int], start: str, precision: float) -> Blocks:
    """``fan_in``: weights N(0, 1/(fan_in + 1)), biases 0. ``prior``: everything N(0, 1/precision)."""
    blocks: list[Array] = []
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        key_w, key_b = jax.random.split(jax.random.fold_in(key, layer))
        w, b = jax.random.normal(key_w, (n, inputs * outputs)), jax.random.normal(key_b, (n, outputs))
        blocks += [w / math.sqrt(inputs + 1), 0 * b] if start == "fan_in" else [w / precision**0.5, b / precision**0.5]
    return tuple(blocks)


def gaussian_log_prior(blocks: Blocks, precision: float) -> Array:
    """log N(W; 0, 1/precision) up to a constant."""
    return -0.5 * precision * sum(jnp.sum(b * b, axis=1) for b in blocks)  # type: ignore[return-value]


def forward(blocks: Blocks, sizes: Sequence[int], x: Array) -> Array:
    """Network outputs, N x rows x outputs."""
    n = blocks[0].shape[0]
    first = jax.lax.dot_general(x, blocks[0].reshape(n * sizes[1], sizes[0]), (((1,), (1,)), ((), ())))
    signal = (first + blocks[1].reshape(1, -1)).reshape(x.shape[0], n, sizes[1]).transpose(1, 0, 2)
    for layer in range(1, len(sizes) - 1):
        weights = blocks[2 * layer].reshape(n, sizes[layer + 1], sizes[layer])
        signal = jnp.einsum("nbh,nch->nbc", jax.nn.relu(signal), weights) + blocks[2 * layer + 1][:, None, :]
    return signal
