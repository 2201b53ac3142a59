"""A network written in plain JAX, over any pytree of parameters: ``apply(params, x)`` and a likelihood of its outputs.

Particles are evaluated one after another (``jax.lax.map``), with convolutions as matrix products
(``models.convolutions``). ``vmap`` over the particles of a convolution takes minutes, while this takes less than a
second. The adapters for Flax, Equinox and PyTorch end here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, gamma_log_density, join, log_mean_exp
from fedstein.models.convolutions import as_products
from fedstein.models.network_curvature import diagonal_gauss_newton, full_gauss_newton
from fedstein.models.outputs import OUTPUTS

NOISE_SHAPE, NOISE_RATE = 1.0, 0.1  # of the Gamma prior of the noise precision gamma, as in ``bnn_regressor``


def from_pytree(
    apply: Callable[[Any, Array], Array],
    params: Any,
    *,
    likelihood: str,
    input_shape: int | Sequence[int],
    prior_scale: Any = 1.0,
    init: Callable[[Array], Any] | None = None,
    noise_sd: float | None = None,
    input_dtype: Any = None,
    name: str = "network",
) -> Model:
    """A Bayesian network from a function and a pytree of parameters.

    Args:
        apply: ``apply(params, x)`` takes rows of shape (rows, \\*input_shape) and returns rows x outputs. A row of the
            result must depend on the same row of x alone.
        params: The parameters, a pytree of floating-point arrays. Their shapes count, and, without ``init``, their
            scales.
        likelihood: ``"categorical"`` (an output a class), or, with one output, ``"bernoulli"`` (its logit),
            ``"gaussian"`` (its mean) or ``"poisson"`` (its log rate).
        input_shape: The shape of one row, such as ``(28, 28, 1)`` for images or ``(50, 8)`` for sequences. Pass
            them to ``fedstein.fit`` in this shape or flattened, ``x.reshape(len(x), -1)``.
        prior_scale: The standard deviation of the Gaussian prior of every parameter: a number, or a pytree of numbers
            whose structure is that of ``params`` or a prefix of it.
        init: ``init(key)`` draws the parameters of one initial particle. Without it, each array of a particle is normal
            with the mean and standard deviation of the entries of the array in ``params``, so that it keeps the scale
            of the library's own initial values; arrays that are constant (biases of zero) start as they are.
        noise_sd: Of ``"gaussian"``: the standard deviation of the noise if it is known. Otherwise theta has a last
            entry log gamma, gamma ~ Gamma(1, 0.1) the precision of the noise.
        input_dtype: What ``apply`` wants x to be, ``jnp.int32`` for tokens. Rows are stored as floats.
        name: What messages call the model.

    Returns:
        The model, with a block for each array of ``params``.

    Raises:
        InputError: An argument has a wrong type, shape or value, ``apply`` fails or returns the wrong shape, or its
            rows depend on each other.
    """
    where = f"model {name!r}"
    if likelihood not in OUTPUTS:
        raise InputError(f"{where}: likelihood must be one of {', '.join(OUTPUTS)}, got {likelihood!r}")
    if noise_sd is not None and (likelihood != "gaussian" or not noise_sd > 0):
        raise InputError(f"{where}: noise_sd is for likelihood 'gaussian' and above zero, got {noise_sd!r}")
    shape = _input_shape(where, input_shape)
    family = OUTPUTS[likelihood]
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    labels = [jax.tree_util.keystr(path, simple=True, separator=".") or "params" for path, _ in paths]
    leaves = [_floating(where, label, leaf) for label, (_, leaf) in zip(labels, paths, strict=True)]
    if not leaves:
        raise InputError(f"{where}: params has no arrays")
    shapes = [leaf.shape for leaf in leaves]
    widths = tuple(leaf.size for leaf in leaves)
    scales = _scales(where, prior_scale, params)
    learned = family.noise and noise_sd is None
    known = jnp.zeros(()) if noise_sd is None else -2 * jnp.log(jnp.asarray(float(noise_sd)))

    def unchecked(params: Any, x: Array) -> Array:
        rows = x.reshape(x.shape[0], *shape)
        out = apply(params, rows if input_dtype is None else rows.astype(input_dtype))
        return out[:, None] if jnp.ndim(out) == 1 else out

    count = _outputs(where, unchecked, params, leaves, shape, likelihood)
    classes = {"categorical": count, "bernoulli": 2}.get(likelihood, 0)
    products = as_products(unchecked)

    def outputs(arrays: Sequence[Array], x: Array) -> Array:
        """rows x outputs of one particle, given as flat arrays."""
        shaped = [array.reshape(s) for array, s in zip(arrays, shapes, strict=True)]
        return products(jax.tree.unflatten(tree, shaped), x).astype(x.dtype)

    def divided(blocks: Blocks) -> tuple[Blocks, Array]:
        """Network and log gamma."""
        if learned:
            return blocks[:-1], blocks[-1][..., 0]
        return blocks, jnp.full(blocks[0].shape[:-1], known, blocks[0].dtype)

    def each(function: Callable[[Blocks, Array], Any], blocks: Blocks) -> Any:
        return jax.lax.map(lambda one: function(*one), divided(blocks))

    def log_density(blocks: Blocks, x: Array, y: Array) -> Array:
        return each(lambda net, gamma: family.log_density(outputs(net, x), gamma, y), blocks)

    def log_prior(blocks: Blocks) -> Array:
        net, log_gamma = divided(blocks)
        found = sum(-0.5 * jnp.sum(b * b, axis=1) / s**2 for b, s in zip(net, scales, strict=True))
        return found + gamma_log_density(log_gamma, NOISE_SHAPE, NOISE_RATE) if learned else found  # type: ignore[return-value]

    def predict(blocks: Blocks, x: Array) -> Array:
        out = each(lambda net, gamma: family.predict(outputs(net, x), gamma), blocks)
        return log_mean_exp(out) if classes else jnp.concatenate([out[..., 0].T, out[..., 1].T], axis=1)

    def sample(key: Array, blocks: Blocks, x: Array) -> Array:
        net, log_gamma = divided(blocks)
        keys = jax.random.split(key, log_gamma.shape[0])
        return jax.lax.map(lambda one: family.sample(one[0], outputs(one[1], x), one[2]), (keys, net, log_gamma)).T

    def roots(out: Array, log_gamma: Array, key: Array, samples: int) -> Array:
        return family.roots(out, log_gamma, key, samples)

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        found = diagonal_gauss_newton(outputs, roots, *divided(blocks), x, weights, key, samples)
        # E[(1/2 - gamma r^2 / 2)^2] = 1/2 for every row
        return (*found, jnp.full((found[0].shape[0], 1), 0.5 * jnp.sum(weights))) if learned else found

    def full_curvature(blocks: Blocks, x: Array, weights: Array) -> Array:
        found = full_gauss_newton(outputs, roots, *divided(blocks), x, weights)
        return jnp.pad(found, ((0, 1), (0, 1))).at[-1, -1].set(0.5 * jnp.sum(weights)) if learned else found

    def start(key: Array, n: int) -> Array:
        keys = jax.random.split(key, n)
        blocks = _drawn_by(where, init, keys, shapes, tree) if init is not None else _drawn_like(leaves, keys)
        if learned:
            gamma = jax.random.exponential(jax.random.fold_in(key, n), (n, 1)) * (NOISE_SHAPE / NOISE_RATE)
            blocks = (*blocks, jnp.log(jnp.maximum(gamma, 1e-6)))
        return join(blocks)

    return Model(
        name=name,
        task=family.task,
        widths=(*widths, 1) if learned else widths,
        init=start,
        log_prior=log_prior,
        log_likelihood=lambda blocks, x, y, weights: log_density(blocks, x, y) @ weights,
        predict=predict,
        prior_curvature=None if learned else 1 / min(scales) ** 2,
        linear_prior_score=-1 / scales[0] ** 2 if len(set(scales)) == 1 and not learned else None,
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        features=math.prod(shape),
        input_shape=shape if len(shape) > 1 else (),
        classes=classes,
        likelihood=family.family,
        sample=sample,
        log_density=(lambda blocks, x, y: log_density(blocks, x, y).T) if likelihood == "poisson" else None,
        target=family.target,
        parameter_names=lambda features: (*_entries(labels, shapes), *(("log gamma",) if learned else ())),
    )


def _input_shape(where: str, given: int | Sequence[int]) -> tuple[int, ...]:
    try:
        shape = (int(given),) if np.ndim(given) == 0 else tuple(int(size) for size in given)  # type: ignore[arg-type, union-attr]
    except (TypeError, ValueError):
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(
            f"{where}: input_shape must be the shape of one row, such as (28, 28, 1) or (5,), got {given!r}"
        )
    return shape


def _floating(where: str, label: str, leaf: Any) -> Array:
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(
            f"{where}: params must hold floating-point arrays only, got {label} of type "
            f"{type(leaf).__name__ if dtype is None else dtype}; let apply close over what is not a parameter"
        )
    if leaf.size == 0:
        raise InputError(f"{where}: the array {label} of params has no entries (shape {leaf.shape})")
    return jnp.asarray(leaf)


def _scales(where: str, given: Any, params: Any) -> list[float]:
    """One prior standard deviation for each array."""
    try:
        found = [float(scale) for scale in jax.tree.leaves(jax.tree.broadcast(given, params))]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: prior_scale must be a number or a pytree of numbers that fits params: "
            f"{str(error).splitlines()[0]}"
        ) from None
    if not all(0 < scale < math.inf for scale in found):
        raise InputError(f"{where}: prior_scale must be above zero and finite, got {given!r}")
    return found


def _outputs(
    where: str,
    function: Callable[[Any, Array], Array],
    params: Any,
    leaves: Sequence[Array],
    shape: tuple[int, ...],
    likelihood: str,
) -> int:
    """The number of outputs, after a call with three rows that checks shape and independence of the rows."""
    draws = np.random.default_rng(0).integers(0, 2, (3, math.prod(shape)))  # tokens 0 and 1 exist in any vocabulary
    x = jnp.asarray(draws, leaves[0].dtype)
    try:
        three, one = jax.jit(lambda p, x: (function(p, x), function(p, x[:1])))(params, x)
    except InputError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise InputError(
            f"{where}: apply(params, x) failed for x of shape {(3, *shape)} (rows, *input_shape): "
            f"{type(error).__name__}: {lines[0] if lines else ''}"
        ) from None
    wanted = "at least 2, one a class" if likelihood == "categorical" else "1"
    columns = three.shape[1] if three.ndim == 2 and three.shape[0] == 3 else 0
    if columns < 1 or (columns > 1) != (likelihood == "categorical"):
        hint = " (for 2 classes and one output use 'bernoulli')" if likelihood == "categorical" and columns == 1 else ""
        raise InputError(
            f"{where}: apply(params, x) must return rows x outputs, with outputs {wanted} for likelihood {likelihood!r}"
            f"{hint}; for x of shape {(3, *shape)} it returned shape {tuple(three.shape)}"
        )
    if not np.allclose(three[:1], one, rtol=1e-3, atol=1e-4 * (1 + float(jnp.max(jnp.abs(three)))), equal_nan=True):
        raise InputError(
            f"{where}: the outputs of a row change with the other rows of the batch, so the likelihood is no product "
            "over rows; replace batch normalisation by layer or group normalisation, and check the axis of softmax or "
            "mean"
        )
    if likelihood == "categorical" and bool((three >= 0).all()) and np.allclose(three.sum(axis=1), 1, atol=1e-5):
        raise InputError(
            f"{where}: the outputs of every row are probabilities, but likelihood 'categorical' takes logits and "
            "applies softmax itself; leave the softmax at the end out"
        )
    return columns


def _drawn_like(leaves: Sequence[Array], keys: Array) -> Blocks:
    """Particles whose arrays have the mean and the standard deviation of the given ones."""
    blocks = []
    for index, leaf in enumerate(leaves):
        noise = jax.vmap(lambda key, i=index, n=leaf.size: jax.random.normal(jax.random.fold_in(key, i), (n,)))(keys)
        spread = jnp.std(leaf)
        constant = spread <= 1e-6 * jnp.max(jnp.abs(leaf))
        drawn = jnp.mean(leaf) + spread * noise
        blocks.append(jnp.where(constant, leaf.ravel(), drawn).astype(noise.dtype))
    return tuple(blocks)


def _drawn_by(
    where: str, init: Callable[[Array], Any], keys: Array, shapes: Sequence[tuple[int, ...]], tree: Any
) -> Blocks:
    found = jax.vmap(init)(keys)
    arrays = jax.tree.leaves(found)
    if jax.tree.structure(found) != tree or [a.shape[1:] for a in arrays] != list(shapes):
        raise InputError(f"{where}: init(key) must return a pytree of the structure and shapes of params, got another")
    return tuple(array.reshape(len(keys), -1).astype(jnp.result_type(float)) for array in arrays)


def _entries(labels: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """The names of all entries: ``dense.kernel[3,0]``."""
    return [
        f"{label}[{','.join(map(str, place))}]" if place else label
        for label, shape in zip(labels, shapes, strict=True)
        for place in np.ndindex(*shape)
    ]
