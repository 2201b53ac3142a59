"""Sums over rows of clipped gradients of any log-likelihood: the mechanism of networks.

A network has no bound on a row's gradient g_i = grad log p(y_i | x_i, theta), so each row's gradient is shortened:

    gradient    sum_i c_i g_i,                        c_i = min(1, C / |g_i|),
    curvature   sum_i f_i (|g_ib|^2)_b,               f_i = min(c_i, 2 C^2 / |g_i|^2),

with g_ib the part of g_i in block b, a weight matrix for instance. One row adds a vector of norm at most C to the first
sum. It adds numbers that are not negative and have the sum f_i |g_i|^2 <= 2 C^2 to the second, so their norm is at most
2 C^2 too. Both hold for every row, every model and every theta. A row whose gradient is not finite adds nothing.

**Norms without rows x d numbers.** In a dense layer the gradient of the weights is the outer product of the layer's
inputs a and the derivative delta by its outputs before the ReLU, so its norm is |a| |delta| (Goodfellow 2015). delta is
the gradient of the biases, which are few. The sum is then the gradient of the log-likelihood with weights c_i. Other
models are differentiated row by row, with so few rows at a time that at most ``NUMBERS`` numbers are in memory.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data.shard import padded_length
from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, cut, join
from fedstein.models.bnn import signals
from fedstein.privacy.mechanism import CURVATURE, GRADIENT

NUMBERS = 2**22  # numbers of single rows' gradients that are in memory at once
SYNTHETIC = 256  # rows for the default of C
CHECKED = 4  # rows on which norms by layers are compared with those of gradients
SHARE = 1 / 3  # C over the gradient's median norm on synthetic rows, unless C is set


def row_sensitivities(clip: float) -> dict[str, float]:
    """How much one row can change each of ``clipped_gradients``' sums."""
    return {GRADIENT: clip, CURVATURE: 2 * clip**2}


def clipped_gradients(
    model: Model, theta: np.ndarray, x: np.ndarray, y: np.ndarray, clip: float
) -> dict[str, np.ndarray]:
    """The sums over rows, before noise. They must not leave the client.

    Args:
        model: A model whose log-likelihood is a sum over rows.
        theta: The point, d.
        x: Rows as the model takes them.
        y: Labels or targets.
        clip: C.

    Returns:
        ``gradient``, d, and ``curvature``, a number for each block; float64.

    Raises:
        InputError: The point is not finite.
    """
    if not np.all(np.isfinite(theta)):
        raise InputError("a private client was asked at a point that is not finite; nothing was released")
    length = padded_length(len(x) + 1)  # one row of padding in any case: its effect must not depend on the rows
    rows, targets = np.zeros((length, *x.shape[1:])), np.zeros(length, np.result_type(y, y))
    rows[: len(x)], targets[: len(y)] = x, y
    with jax.enable_x64(True):
        exists = jnp.arange(length) < len(x)
        sums = _dense_sums if model.layers else _sums_in_pieces
        found = sums(model, jnp.asarray(theta)[None], jnp.asarray(rows), jnp.asarray(targets), exists, float(clip))
        finite = all(bool(jnp.all(jnp.isfinite(array))) for array in found)
        return {
            name: np.asarray(array, np.float64) if finite else np.zeros(array.shape)
            for name, array in zip((GRADIENT, CURVATURE), found, strict=True)
        }


def row_norms(model: Model, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|g_ib|^2 of every row and block, rows x blocks, in float64. They must not leave the client."""
    with jax.enable_x64(True):
        return np.asarray(_squares(model, jnp.asarray(theta, jnp.float64)[None], jnp.asarray(x, float), jnp.asarray(y)))


@partial(jax.jit, static_argnums=0)
def _squares(model: Model, theta: Array, x: Array, y: Array) -> Array:
    """|g_ib|^2, rows x blocks."""
    return (_dense_squares if model.layers else _squares_one_by_one)(model, cut(theta, model.widths), x, y)


def default_clip(model: Model, theta: np.ndarray) -> float:
    """Choose C from the model and the first point alone: a share of the gradient's median norm on synthetic rows.

    Args:
        model: The model.
        theta: A point that everybody knows, d.

    Returns:
        C. Synthetic rows have standard normal features, and labels in turn or standard normal targets.

    Raises:
        InputError: The model does not take such rows.
    """
    if model.features:
        norm = float(np.median(np.sqrt(row_norms(model, theta, *_synthetic(model, SYNTHETIC)).sum(axis=1))))
        if np.isfinite(norm) and norm > 0:
            return SHARE * norm
    raise InputError(
        f"privacy.clip has no default for model {model.name!r}: its gradient on synthetic rows has no norm; set "
        "privacy.clip to the norm beyond which the gradient of a row is shortened, without looking at rows"
    )


def check_norms(model: Model, theta: np.ndarray) -> None:
    """Refuse a model whose ``layers`` do not describe its likelihood: norms by layers would be wrong.

    Args:
        model: The model.
        theta: A point that everybody knows, d.

    Raises:
        InputError: Norms by layers differ from those of the rows' gradients.
    """
    if not model.layers:
        return
    x, y = _synthetic(model, SYNTHETIC)
    found = row_norms(model, theta, x, y)[:CHECKED]
    expected = row_norms(model._replace(layers=()), theta, x[:CHECKED], y[:CHECKED])
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-12 * expected.max()):
        raise InputError(
            f"model {model.name!r} has Model.layers = {model.layers}, which do not describe its log-likelihood: the "
            "gradient of a row has another norm; set layers = ()"
        )


def _synthetic(model: Model, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Make synthetic rows: standard normal features, with labels in turn, standard normal targets or counts of one."""
    random = np.random.default_rng(0)
    x = random.standard_normal((count, model.features))
    if model.task == "classification":
        return x, np.arange(count) % model.classes
    return x, random.standard_normal(count) if model.target == "real" else np.ones(count)


def _factors(squares: Array, exists: Array, clip: float) -> tuple[Array, Array, Array]:
    """Which rows count, c_i and f_i, from |g_ib|^2."""
    total = jnp.sum(squares, axis=1)
    counts = exists & jnp.isfinite(total)
    norm = jnp.sqrt(jnp.where(counts, jnp.maximum(total, 1e-300), 1.0))
    shorter = jnp.where(counts, jnp.minimum(1.0, clip / norm), 0.0)
    return counts, shorter, jnp.minimum(shorter, 2 * clip**2 / norm**2)


def _weighted(squares: Array, counts: Array, factors: Array) -> Array:
    return jnp.sum(jnp.where(counts[:, None], squares, 0.0) * factors[:, None], axis=0)


def _dense_squares(model: Model, blocks: Blocks, x: Array, y: Array) -> Array:
    """|g_ib|^2 by the outer products of a dense network's layers."""
    layers = len(model.layers) - 1
    few = (*range(1, 2 * layers, 2), *range(2 * layers, len(blocks)))  # biases, and the blocks after the layers

    def of_row(x_i: Array, y_i: Array) -> list[Array]:
        def likelihood(chosen: list[Array]) -> Array:
            replaced = dict(zip(few, chosen, strict=True))
            whole = tuple(replaced.get(index, block) for index, block in enumerate(blocks))
            return jnp.sum(model.log_likelihood(whole, x_i[None], y_i[None], jnp.ones(1, x.dtype)))

        return jax.grad(likelihood)([blocks[index] for index in few])

    deltas = [jnp.sum(delta[:, 0] ** 2, axis=1) for delta in jax.vmap(of_row)(x, y)]
    before = signals(blocks[: 2 * layers], model.layers, x)
    inputs = [x, *(jax.nn.relu(values[0]) for values in before[:-1])]
    found = []
    for layer in range(layers):
        found += [deltas[layer] * jnp.sum(inputs[layer] ** 2, axis=1), deltas[layer]]
    return jnp.stack([*found, *deltas[layers:]], axis=1)


@partial(jax.jit, static_argnums=0)
def _dense_sums(model: Model, theta: Array, x: Array, y: Array, exists: Array, clip: float) -> tuple[Array, Array]:
    blocks = cut(theta, model.widths)
    squares = _dense_squares(model, blocks, x, y)
    counts, shorter, factors = _factors(squares, exists, clip)
    x, y = jnp.where(counts[:, None], x, 0), jnp.where(counts, y, 0)  # a weight of zero would not remove a NaN
    return join(model.likelihood_score(blocks, x, y, shorter))[0], _weighted(squares, counts, factors)


def _one_row(model: Model, blocks: Blocks, x_i: Array, y_i: Array) -> Array:
    """g_i, d numbers."""

    def likelihood(given: Blocks) -> Array:
        return jnp.sum(model.log_likelihood(given, x_i[None], y_i[None], jnp.ones(1, x_i.dtype)))

    return join(jax.grad(likelihood)(blocks))[0]


def _block_squares(model: Model, gradients: Array) -> Array:
    return jnp.stack([jnp.sum(part**2, axis=1) for part in cut(gradients, model.widths)], axis=1)


def _squares_one_by_one(model: Model, blocks: Blocks, x: Array, y: Array) -> Array:
    return jax.lax.map(lambda row: _block_squares(model, _one_row(model, blocks, *row)[None])[0], (x, y))


@partial(jax.jit, static_argnums=0)
def _sums_in_pieces(model: Model, theta: Array, x: Array, y: Array, exists: Array, clip: float) -> tuple[Array, Array]:
    blocks = cut(theta, model.widths)
    size = max(1, min(len(x), NUMBERS // model.dim))
    missing = -len(x) % size
    given = [jnp.pad(a, ((0, missing), *((0, 0),) * (a.ndim - 1))) for a in (x, y, exists)]

    def add(total: tuple[Array, Array], piece: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        x, y, exists = piece
        gradients = jax.vmap(partial(_one_row, model, blocks))(x, y)
        squares = _block_squares(model, gradients)
        counts, shorter, factors = _factors(squares, exists, clip)
        gradient = shorter @ jnp.where(counts[:, None], gradients, 0.0)
        return (total[0] + gradient, total[1] + _weighted(squares, counts, factors)), None

    zero = (jnp.zeros(model.dim, x.dtype), jnp.zeros(len(model.widths), x.dtype))
    return jax.lax.scan(add, zero, tuple(a.reshape(-1, size, *a.shape[1:]) for a in given))[0]
