"""Bayesian neural networks with ReLU layers: classification (softmax) and regression (Gaussian noise, log gamma).

The weights have the prior N(0, 1/lambda). A layer is evaluated for all particles at once. The first layer is a single
(N*H) x D matrix product, because a batched product for each particle is many times slower on a CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.errors import InputError
from fedstein.models.base import (
    Blocks,
    Model,
    ModelKind,
    ModelSettings,
    ModelTraits,
    check_start,
    gamma_draws,
    gamma_log_density,
    join,
    log_mean_exp,
)
from fedstein.settings import Positive, PositiveFloat

STARTS = ("fan_in", "prior")


class NetworkSettings(ModelSettings):
    """Settings that both networks share."""

    hidden: Annotated[list[Positive], Field(min_length=1)] = Field([100], description="Units of each hidden layer.")
    prior_precision: PositiveFloat = Field(math.e, description="Precision of the weights' Gaussian prior.")
    start: Literal["fan_in", "prior"] = Field(
        "fan_in", description="Where particles start: N(0, 1 / (fan_in + 1)) with zero biases, or the prior."
    )


class ClassifierSettings(NetworkSettings):
    """Settings of the Bayesian neural network for classification."""

    kind: str = "bnn_classifier"
    label_noise: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="e, the share of labels that are expected to be wrong: a training label is the true one with "
        "probability 1 - e, else any other one. Predictions are of true labels.",
    )


class RegressorSettings(NetworkSettings):
    """Settings of the Bayesian neural network for regression."""

    kind: str = "bnn_regressor"
    hidden: Annotated[list[Positive], Field(min_length=1)] = Field([50], description="Units of each hidden layer.")
    prior_shape: PositiveFloat = Field(1.0, description="Shape of the prior Gamma(shape, rate) of the noise precision.")
    prior_rate: PositiveFloat = Field(0.1, description="Rate of that prior.")


def bnn_classifier(
    features: int,
    classes: int,
    *,
    hidden: Sequence[int] = (100,),
    prior_precision: float = math.e,
    start: str = "fan_in",
    label_noise: float = 0.0,
) -> Model:
    """Build a network with a categorical likelihood.

    With label noise e, a label y has the probability a p_y + b, where p = softmax(f(x)), b = e / (classes - 1) and
    a = 1 - e - b. Its score in f is that of the categorical likelihood times the probability that the label is true,
    a p_y / (a p_y + b): rows whose labels the network disbelieves pull little. Predictions are of true labels, p.

    Args:
        features: The number of inputs.
        classes: The number of classes.
        hidden: The widths of the hidden layers.
        prior_precision: The precision lambda of the prior N(0, 1/lambda) of every weight.
        start: The distribution of the initial particles, see ``init_layers``.
        label_noise: The share e of labels that are expected to be wrong.

    Returns:
        The model, with theta = [W1, b1, W2, b2, ...] and each W stored as outputs x inputs.

    Raises:
        ValueError: If ``start`` is unknown.
        InputError: If labels are expected to say nothing, or less than that.
    """
    check_start(start, STARTS)
    sizes = (features, *hidden, classes)
    other = label_noise / (classes - 1)  # b
    true = 1 - label_noise - other  # a
    if true <= 0:
        raise InputError(
            f"model.label_noise = {label_noise}: with {classes} classes expected less than {1 - 1 / classes:.3g}, "
            "above which a label says nothing about the true one"
        )

    def of_logits(logits: Array, y: Array, weights: Array) -> Array:
        log_probs = jax.nn.log_softmax(logits, axis=-1)  # N x rows x classes
        chosen = jnp.take_along_axis(log_probs, y[None, :, None], axis=-1)[..., 0]
        if label_noise:
            chosen = jnp.logaddexp(math.log(true) + chosen, math.log(other))
        return chosen @ weights

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return of_logits(forward(blocks, sizes, x), y, weights)

    def log_likelihood_around(offset: Blocks, origin: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return of_logits(signals(offset, sizes, x, origin)[-1], y, weights)

    def predict(blocks: Blocks, x: Array) -> Array:
        return log_mean_exp(jax.nn.log_softmax(forward(blocks, sizes, x), axis=-1))

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        logits = forward(blocks, sizes, x)
        p = jax.nn.softmax(logits, axis=-1)  # N x rows x classes
        if samples:
            drawn_from = jnp.log(true * p + other) if label_noise else logits
            labels = jax.random.categorical(key, drawn_from[..., None, :], shape=(*logits.shape[:2], samples))
            hits, shares = jax.nn.one_hot(labels, classes, dtype=p.dtype), jnp.full((samples, 1), 1 / samples, p.dtype)
            if label_noise:  # the squared probability that a label is true
                of_label = jnp.sum(hits * p[..., None, :], axis=-1, keepdims=True)
                shares = shares * (true * of_label / (true * of_label + other)) ** 2
        elif label_noise:
            hits, shares = jnp.eye(classes, dtype=p.dtype), ((true * p) ** 2 / (true * p + other))[..., None]
        else:
            hits, shares = jnp.eye(classes, dtype=p.dtype), p[..., None]
        return squared_backward(blocks, sizes, x, weights, jnp.sqrt(shares) * (hits - p[:, :, None, :]))

    return Model(
        name="bnn_classifier",
        task="classification",
        widths=layer_widths(sizes),
        init=lambda key, n: join(init_layers(key, n, sizes, start, prior_precision)),
        log_prior=lambda blocks: gaussian_log_prior(blocks, prior_precision),
        log_likelihood=log_likelihood,
        log_likelihood_around=log_likelihood_around,
        predict=predict,
        prior_curvature=prior_precision,
        linear_prior_score=-prior_precision,
        diagonal_curvature=diagonal_curvature,
        input_block=0,
        features=features,
        classes=classes,
        layers=sizes,
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
    """Build a network with Gaussian noise: y ~ N(f(x; W), 1/gamma), gamma ~ Gamma(prior_shape, prior_rate).

    Args:
        features: The number of inputs.
        hidden: The widths of the hidden layers.
        prior_precision: The precision lambda of the prior N(0, 1/lambda) of every weight.
        prior_shape: The shape of the prior of gamma.
        prior_rate: The rate of the prior of gamma.
        start: The distribution of the initial particles, see ``init_layers``.

    Returns:
        The model, with theta = [W1, b1, ..., log gamma].

    Raises:
        ValueError: If ``start`` is unknown.
    """
    check_start(start, STARTS)
    sizes = (features, *hidden, 1)

    def init(key: Array, n: int) -> Array:
        key_layers, key_gamma = jax.random.split(key)
        gamma = jnp.maximum(gamma_draws(key_gamma, prior_shape, n) / prior_rate, 1e-6)
        return join((*init_layers(key_layers, n, sizes, start, prior_precision), jnp.log(gamma)))

    def log_prior(blocks: Blocks) -> Array:
        noise = gamma_log_density(blocks[-1][:, 0], prior_shape, prior_rate)
        return gaussian_log_prior(blocks[:-1], prior_precision) + noise

    def of_means(mean: Array, log_gamma: Array, y: Array, weights: Array) -> Array:  # N x rows, N x 1
        log_density = 0.5 * (log_gamma - math.log(2 * math.pi) - jnp.exp(log_gamma) * (y[None, :] - mean) ** 2)
        return log_density @ weights

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return of_means(forward(blocks[:-1], sizes, x)[..., 0], blocks[-1], y, weights)

    def log_likelihood_around(offset: Blocks, origin: Blocks, x: Array, y: Array, weights: Array) -> Array:
        mean = signals(offset[:-1], sizes, x, origin[:-1])[-1][..., 0]
        return of_means(mean, offset[-1] + origin[-1], y, weights)

    def predict(blocks: Blocks, x: Array) -> Array:
        mean = forward(blocks[:-1], sizes, x)[..., 0]
        return jnp.concatenate([mean.T, jnp.broadcast_to(blocks[-1].T, mean.T.shape)], axis=1)

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        n, rows = blocks[0].shape[0], x.shape[0]
        roots = jnp.broadcast_to(jnp.exp(0.5 * blocks[-1])[:, :, None, None], (n, rows, 1, 1))
        if samples:
            noise = jax.random.normal(key, (n, rows, samples, 1), roots.dtype)
            roots = roots * noise / math.sqrt(samples)
        of_gamma = jnp.full((n, 1), 0.5 * jnp.sum(weights))  # E[(1/2 - gamma r^2 / 2)^2] = 1/2 for every row
        return (*squared_backward(blocks[:-1], sizes, x, weights, roots), of_gamma)

    return Model(
        name="bnn_regressor",
        task="regression",
        widths=(*layer_widths(sizes), 1),
        init=init,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        log_likelihood_around=log_likelihood_around,
        predict=predict,
        diagonal_curvature=diagonal_curvature,
        input_block=0,
        features=features,
        likelihood="gaussian",
        layers=sizes,
    )


def layer_widths(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the widths of the blocks [W1, b1, W2, b2, ...]."""
    return tuple(w for a, b in itertools.pairwise(sizes) for w in (a * b, b))


def init_layers(key: Array, n: int, sizes: Sequence[int], start: str, precision: float) -> Blocks:
    """Draw initial weights.

    Args:
        key: The key of the draws.
        n: The number of particles.
        sizes: The widths of all layers, inputs and outputs included.
        start: ``fan_in`` draws weights from N(0, 1/(fan_in + 1)) and sets biases to 0. ``prior`` draws everything from
            N(0, 1/precision).
        precision: The precision of the prior.
    """
    blocks: list[Array] = []
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        key_w, key_b = jax.random.split(jax.random.fold_in(key, layer))
        w = jax.random.normal(key_w, (n, inputs * outputs))
        if start == "fan_in":
            blocks += [w / math.sqrt(inputs + 1), jnp.zeros((n, outputs), w.dtype)]
        else:
            blocks += [w / precision**0.5, jax.random.normal(key_b, (n, outputs)) / precision**0.5]
    return tuple(blocks)


def gaussian_log_prior(blocks: Blocks, precision: float) -> Array:
    """Compute log N(W; 0, 1/precision) at every particle, up to a constant."""
    return -0.5 * precision * sum(jnp.sum(b * b, axis=1) for b in blocks)  # type: ignore[return-value]


def forward(blocks: Blocks, sizes: Sequence[int], x: Array) -> Array:
    """Compute the outputs of the network, N x rows x outputs."""
    return signals(blocks, sizes, x)[-1]


def signals(blocks: Blocks, sizes: Sequence[int], x: Array, origin: Blocks | None = None) -> list[Array]:
    """Compute the values of every layer before its ReLU, N x rows x units.

    Args:
        blocks: The weights of the particles.
        sizes: The widths of all layers.
        x: The rows.
        origin: If given, the weights are blocks + origin. The first layer is by far the largest and is linear in its
            weights, so it is evaluated for blocks and origin separately instead of for their sum.
    """
    n = blocks[0].shape[0]
    first = jax.lax.dot_general(x, blocks[0].reshape(n * sizes[1], sizes[0]), (((1,), (1,)), ((), ())))
    first = first.reshape(x.shape[0], n, sizes[1])
    if origin is not None:
        first = first + (x @ origin[0].reshape(sizes[1], sizes[0]).T)[:, None, :]
        blocks = (blocks[0], *(b + o for b, o in zip(blocks[1:], origin[1:], strict=True)))
    first = first + blocks[1][None, :, :]
    # The axes keep the order of the matrix product: a transposed copy makes a step 5 % slower on two threads.
    found, active, axes = [first.transpose(1, 0, 2)], jax.nn.relu(first), "bnh"
    for layer in range(1, len(sizes) - 1):
        weights = blocks[2 * layer].reshape(n, sizes[layer + 1], sizes[layer])
        found.append(jnp.einsum(f"{axes},nch->nbc", active, weights) + blocks[2 * layer + 1][:, None, :])
        active, axes = jax.nn.relu(found[-1]), "nbh"
    return found


def squared_backward(blocks: Blocks, sizes: Sequence[int], x: Array, weights: Array, roots: Array) -> Blocks:
    """Compute the diagonal of J' (sum_c r_c r_c') J for every particle, where J is the Jacobian of the outputs.

    The columns r_c are propagated backwards through the layers. For a weight from unit i to unit o, the entry is
    sum_rows w a_i^2 sum_c delta_co^2, which is one matrix product for each layer.

    Args:
        blocks: The weights of the particles.
        sizes: The widths of all layers.
        x: The rows.
        weights: The weights of the rows.
        roots: The columns r_c, N x rows x columns x outputs.

    Returns:
        The diagonal, as blocks.
    """
    n, before = blocks[0].shape[0], signals(blocks, sizes, x)
    found: list[Array] = []
    for layer in reversed(range(len(sizes) - 1)):
        squared = jnp.sum(roots * roots, axis=2) * weights[None, :, None]  # N x rows x outputs
        if layer:
            active = jax.nn.relu(before[layer - 1])
            of_weights = jnp.einsum("nbo,nbi->noi", squared, active * active).reshape(n, -1)
            matrix = blocks[2 * layer].reshape(n, sizes[layer + 1], sizes[layer])
            roots = jnp.einsum("nbco,noi->nbci", roots, matrix) * (before[layer - 1] > 0)[:, :, None, :]
        else:
            of_weights = (squared.transpose(0, 2, 1).reshape(n * sizes[1], -1) @ (x * x)).reshape(n, -1)
        found += [jnp.einsum("nbo->no", squared), of_weights]
    return tuple(reversed(found))


BNN_CLASSIFIER = ModelKind(
    name="bnn_classifier",
    about="Bayesian neural network, ReLU layers, softmax",
    task="classification",
    settings=ClassifierSettings,
    build=lambda features, classes, settings: bnn_classifier(
        features, classes, **settings.model_dump(exclude={"kind"})
    ),
    traits=ModelTraits(1e-3, 1e-6, 4e-3, "eigen", "log", "divided"),
)
BNN_REGRESSOR = ModelKind(
    name="bnn_regressor",
    about="Bayesian neural network with Gaussian noise, theta = [W, log gamma]",
    task="regression",
    settings=RegressorSettings,
    build=lambda features, classes, settings: bnn_regressor(features, **settings.model_dump(exclude={"kind"})),
    traits=ModelTraits(1e-3, 1e-6, 4e-3, "eigen", "log", "as_written"),
)
