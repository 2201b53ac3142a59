"""Networks of other libraries: the built-in network with the same weights, curvature, convolutions, and refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fedstein
from fedstein import models
from fedstein.errors import InputError
from fedstein.models.convolutions import as_products

KEY = jax.random.key(0)
FEATURES, HIDDEN, CLASSES, N = 5, 4, 3, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, FEATURES)).astype(np.float32)
Y = np.arange(12) % CLASSES


def mlp(params: Any, x: Array) -> Array:
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def mlp_params(outputs: int) -> Any:
    draw = np.random.default_rng(1)
    return {
        "b": jnp.zeros(HIDDEN),
        "v": jnp.asarray(draw.normal(size=(HIDDEN, outputs)), jnp.float32),
        "w": jnp.asarray(draw.normal(size=(FEATURES, HIDDEN)), jnp.float32),
    }


def flax_linen() -> models.Model:
    from flax import linen

    network = linen.Sequential([linen.Dense(HIDDEN), linen.relu, linen.Dense(CLASSES)])
    return models.from_flax(network, likelihood="categorical", input_shape=FEATURES, prior_scale=0.5)


def flax_nnx() -> models.Model:
    from flax import nnx

    rngs = nnx.Rngs(0)
    network = nnx.Sequential(nnx.Linear(FEATURES, HIDDEN, rngs=rngs), nnx.relu, nnx.Linear(HIDDEN, CLASSES, rngs=rngs))
    return models.from_flax(network, likelihood="categorical", input_shape=(FEATURES,), prior_scale=0.5)


def equinox() -> models.Model:
    import equinox as eqx

    network = eqx.nn.MLP(FEATURES, CLASSES, HIDDEN, 1, key=KEY)
    return models.from_equinox(network, likelihood="categorical", input_shape=FEATURES, prior_scale=0.5)


@pytest.mark.parametrize("build", [flax_linen, flax_nnx, equinox])
def test_a_network_is_the_built_in_one_with_the_same_weights(build: Callable[[], models.Model]) -> None:
    model, known = build(), models.bnn_classifier(FEATURES, CLASSES, hidden=(HIDDEN,), prior_precision=4.0)
    w1, b1, w2, b2 = blocks = known.split(known.init(KEY, N))
    if build is equinox:  # weights are outputs x inputs, as ours

        def arranged(blocks: Any) -> Any:
            return blocks

        own: Any = (w1, b1, w2, b2)
    else:  # biases first, kernels inputs x outputs

        def arranged(blocks: Any) -> Any:
            b1, w1, b2, w2 = blocks
            turned = [
                w.reshape(N, i, o).swapaxes(1, 2).reshape(N, -1)
                for w, i, o in ((w1, FEATURES, HIDDEN), (w2, HIDDEN, CLASSES))
            ]
            return turned[0], b1, turned[1], b2

        own = (
            b1,
            w1.reshape(N, HIDDEN, FEATURES).swapaxes(1, 2).reshape(N, -1),
            b2,
            w2.reshape(N, CLASSES, HIDDEN).swapaxes(1, 2).reshape(N, -1),
        )
    assert model.widths == tuple(block.shape[1] for block in own)
    assert model.linear_prior_score == known.linear_prior_score
    weights = jnp.linspace(0.5, 1.5, len(X))

    def numbers(model: models.Model, blocks: Any, arranged: Any) -> list[Any]:
        assert model.diagonal_curvature is not None
        return [
            model.log_prior(blocks),
            model.log_likelihood(blocks, X, Y, weights),
            model.predict(blocks, X),
            *arranged(model.likelihood_score(blocks, X, Y, weights)),
            *arranged(model.diagonal_curvature(blocks, X, weights, KEY, 0)),
        ]

    got = jax.jit(lambda b: numbers(model, b, arranged))(own)
    expected = jax.jit(lambda b: numbers(known, b, lambda blocks: blocks))(blocks)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "gaussian", "poisson"])
def test_the_curvature_of_every_likelihood_is_the_fisher_information(likelihood: str) -> None:
    """Against finite differences of the score over the labels that the model expects; and drawn labels on average."""
    outputs = CLASSES if likelihood == "categorical" else 1
    y = {"categorical": Y, "bernoulli": Y % 2, "gaussian": X[:, 0], "poisson": Y.astype(np.float32)}[likelihood]
    model = models.from_pytree(mlp, mlp_params(outputs), likelihood=likelihood, input_shape=FEATURES)
    models.check_model(model, X, y)
    assert model.diagonal_curvature is not None
    blocks, ones = model.split(model.init(KEY, 2)), jnp.ones(len(X))
    exact, drawn = (
        np.concatenate(model.diagonal_curvature(blocks, X, ones, KEY, samples), axis=1) for samples in (0, 400)
    )
    np.testing.assert_allclose(drawn, exact, atol=0.1 * exact.max())


def test_noise_that_is_known_is_no_parameter() -> None:
    model = models.from_pytree(mlp, mlp_params(1), likelihood="gaussian", input_shape=FEATURES, noise_sd=0.5)
    assert model.dim == FEATURES * HIDDEN + 2 * HIDDEN
    assert model.parameter_names is not None
    assert model.parameter_names(())[:5] == ("b[0]", "b[1]", "b[2]", "b[3]", "v[0,0]")
    blocks = model.split(model.init(KEY, 2))
    mean = np.asarray(
        jax.vmap(lambda b, v, w: mlp({"b": b, "v": v[:, None], "w": w.reshape(FEATURES, -1)}, X))(*blocks)
    )
    expected = -0.5 * (((X[:, 0] - mean[..., 0]) / 0.5) ** 2 + np.log(2 * np.pi * 0.25)).sum(axis=1)
    np.testing.assert_allclose(model.log_likelihood(blocks, X, X[:, 0], jnp.ones(len(X))), expected, rtol=1e-5)


def test_particles_start_with_the_scale_of_the_given_parameters() -> None:
    model = models.from_pytree(
        mlp, mlp_params(1), likelihood="poisson", input_shape=FEATURES, prior_scale={"b": 1.0, "v": 2.0, "w": 3.0}
    )
    b, v, w = model.split(model.init(KEY, 500))
    assert not np.any(b)
    given = mlp_params(1)
    np.testing.assert_allclose([v.std(), w.std()], [given["v"].std(), given["w"].std()], rtol=0.05)
    expected = [-0.5 * float(p @ p) / s**2 for p, s in ((v[0], 2.0), (w[0], 3.0))]
    np.testing.assert_allclose(model.log_prior((b, v, w))[0], sum(expected), rtol=1e-5)
    own = models.from_pytree(
        mlp,
        mlp_params(1),
        likelihood="poisson",
        input_shape=FEATURES,
        init=lambda key: {**mlp_params(1), "b": jnp.ones(4)},
    )
    assert np.all(own.init(KEY, 2)[:, :4] == 1)


@pytest.mark.parametrize(
    ("shape", "kernel", "numbers", "options"),
    [
        ((2, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
        ((2, 3, 9, 8), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {"padding": "VALID", "window_strides": (2, 1)}),
        ((2, 9, 3), (3, 3, 4), ("NWC", "WIO", "NWC"), {"padding": [(2, 1)], "rhs_dilation": (2,)}),
        ((2, 8, 8, 4), (3, 3, 2, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 2}),
    ],
)
def test_convolutions_as_products_are_convolutions(shape: Any, kernel: Any, numbers: Any, options: Any) -> None:
    x, k = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate((shape, kernel)))
    options = {"window_strides": (1,) * (len(shape) - 2), **options}
    window = tuple(2 if size in (7, 8, 9) else 1 for size in shape)

    @jax.jit
    def network(x: Array, k: Array) -> Array:
        out = jax.lax.conv_general_dilated(x, k, dimension_numbers=numbers, **options)
        return jax.lax.reduce_window(jnp.sin(out), -jnp.inf, jax.lax.max, window, window, "VALID")

    def both(function: Callable[..., Array]) -> Any:
        return jax.jit(jax.value_and_grad(lambda x, k: jnp.sum(jnp.cos(function(x, k))), (0, 1)))(x, k)

    got, expected = both(as_products(network)), both(network)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_images_may_be_passed_in_their_shape() -> None:
    """The same posterior as from flattened rows; channels in another place are refused."""

    def network(params: Any, x: Array) -> Array:
        return jnp.einsum("rhwc,hwco->ro", x, params)

    model = models.from_pytree(network, jnp.ones((2, 3, 1, 2)), likelihood="categorical", input_shape=(2, 3, 1))
    images, labels = RNG.normal(size=(8, 2, 3, 1)).astype(np.float32), np.arange(8) % 2
    flat = images.reshape(8, -1)
    given: dict[str, Any] = {"rounds": 1, "algorithm__particles": 2, "sites__settle": False}
    shaped = fedstein.fit(model, [(images, labels)], test=(images, labels), **given)
    known = fedstein.fit(model, {"client 0": (flat, labels)}, test=(flat, labels), **given)
    np.testing.assert_array_equal(shaped.particles, known.particles)
    np.testing.assert_array_equal(shaped.predict(images), known.predict(flat))
    with pytest.raises(InputError, match=r"client 0: x: .* rows of shape \(2, 3, 1\), got shape \(8, 1, 2, 3\)"):
        fedstein.fit(model, [(images.reshape(8, 1, 2, 3), labels)], **given)
    with pytest.raises(InputError, match=r"rows of shape \(2, 3, 1\), got shape \(8, 1, 2, 3\)"):
        shaped.predict(images.reshape(8, 1, 2, 3))


def test_tokens_reach_the_network_as_integers() -> None:
    def recurrent(params: Any, x: Array) -> Array:  # an embedding, then a mean over the sequence
        return params["embedding"][x].mean(axis=1) @ params["w"]

    params = {"embedding": jnp.ones((6, 2)), "w": jnp.ones((2, 2))}
    model = models.from_pytree(recurrent, params, likelihood="categorical", input_shape=7, input_dtype=jnp.int32)
    x = RNG.integers(0, 6, (4, 7)).astype(np.float32)
    assert model.predict(model.split(model.init(KEY, 2)), jnp.asarray(x)).shape == (4, 2)


def refused_flax(**given: Any) -> models.Model:
    from flax import linen

    return models.from_flax(**{"module": linen.Dense(1), "likelihood": "gaussian", "input_shape": FEATURES, **given})


def batch_norm() -> Any:
    from flax import linen

    return linen.Sequential([linen.BatchNorm(use_running_average=True), linen.Dense(1)])


def stateful_nnx() -> Any:
    from flax import nnx

    return nnx.BatchNorm(FEATURES, rngs=nnx.Rngs(0))


def stateful_equinox() -> Any:
    import equinox as eqx

    return eqx.nn.BatchNorm(FEATURES, "batch", mode="batch")


TREE: dict[str, Any] = {"apply": mlp, "params": mlp_params(1), "likelihood": "gaussian", "input_shape": FEATURES}
REFUSED: dict[str, Callable[[], Any]] = {
    "likelihood must be one of categorical, bernoulli, gaussian, poisson, got 'normal'": lambda: models.from_pytree(
        **{**TREE, "likelihood": "normal"}
    ),
    "input_shape must be the shape of one row": lambda: models.from_pytree(**{**TREE, "input_shape": (0, 3)}),
    r"apply\(params, x\) failed for x of shape \(3, 7\)": lambda: models.from_pytree(**{**TREE, "input_shape": 7}),
    "with outputs 1 for likelihood 'gaussian'": lambda: models.from_pytree(**{**TREE, "params": mlp_params(2)}),
    "use 'bernoulli'": lambda: models.from_pytree(**{**TREE, "likelihood": "categorical"}),
    "prior_scale must be above zero": lambda: models.from_pytree(**{**TREE, "prior_scale": 0.0}),
    "prior_scale must be a number or a pytree": lambda: models.from_pytree(**{**TREE, "prior_scale": {"a": 1.0}}),
    "noise_sd is for likelihood 'gaussian'": lambda: models.from_pytree(**{**TREE, "noise_sd": -1.0}),
    "floating-point arrays only, got steps of type int": lambda: models.from_pytree(
        **{**TREE, "params": {**mlp_params(1), "steps": 3}}
    ),
    "change with the other rows": lambda: models.from_pytree(
        **{**TREE, "apply": lambda p, x: mlp(p, x) - mlp(p, x).mean(axis=0)}
    ),
    "state besides its parameters .batch_stats.": lambda: refused_flax(module=batch_norm()),
    "state besides its parameters .BatchStat.": lambda: refused_flax(module=stateful_nnx()),
    "the module has state besides its parameters, which": lambda: models.from_equinox(
        stateful_equinox(), likelihood="gaussian", input_shape=FEATURES
    ),
    "expects an instance of flax.nnx.Module or flax.linen.Module, got dict": lambda: refused_flax(module={}),
    "expects an instance of equinox.Module, got the class": lambda: models.from_equinox(
        dict, likelihood="gaussian", input_shape=FEATURES
    ),
    "draws its own initial values": lambda: refused_flax(init=lambda rngs: None),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_is_no_network_of_rows_is_refused(sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        REFUSED[sentence]()


@pytest.mark.slow
@pytest.mark.user_programs
def test_a_convolutional_network_costs_little_more_than_one_written_by_hand() -> None:
    """CPU time of a score on 28 x 28 images; it must stay below 3 times that of a batched implementation."""
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            for width in (8, 16):
                x = linen.max_pool(linen.relu(linen.Conv(width, (3, 3))(x)), (2, 2), (2, 2))
            return linen.Dense(10)(x.reshape(len(x), -1))

    n, rows, size = 10, 50, 28
    model = models.from_flax(Network(), likelihood="categorical", input_shape=(size, size, 1))
    x = jax.random.normal(KEY, (rows, size * size))
    y, weights = jnp.arange(rows) % 10, jnp.ones(rows)

    def windows(a: Array) -> Array:
        padded = jnp.pad(a, ((0, 0),) * (a.ndim - 3) + ((1, 1), (1, 1), (0, 0)))
        h, w = a.shape[-3:-1]
        return jnp.concatenate([padded[..., i : i + h, j : j + w, :] for i in range(3) for j in range(3)], axis=-1)

    def by_hand(blocks: Any) -> Array:
        b1, k1, b2, k2, b3, w3 = blocks
        first = windows(x.reshape(rows, size, size, 1)).reshape(-1, 9) @ k1.reshape(n, 9, 8).swapaxes(0, 1).reshape(
            9, -1
        )
        a = jax.nn.relu(first.reshape(rows, size, size, n, 8) + b1)
        a = a.reshape(rows, size // 2, 2, size // 2, 2, n, 8).max((2, 4)).transpose(3, 0, 1, 2, 4)
        second = jnp.einsum("nrk,nkf->nrf", windows(a).reshape(n, -1, 72), k2.reshape(n, 72, 16)) + b2[:, None]
        a = jax.nn.relu(second).reshape(n, rows, size // 4, 2, size // 4, 2, 16).max((3, 5)).reshape(n, rows, -1)
        logits = jnp.einsum("nbk,nkc->nbc", a, w3.reshape(n, -1, 10)) + b3[:, None]
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[None, :, None], axis=2))

    blocks = model.split(model.init(KEY, n))
    programs = [jax.jit(lambda b: model.likelihood_score(b, x, y, weights)), jax.jit(jax.grad(by_hand))]
    for mine, theirs in zip(*(program(blocks) for program in programs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=1e-3)

    def seconds(program: Any) -> float:
        begin = time.process_time()
        jax.block_until_ready(program(blocks))
        return time.process_time() - begin

    adapter, hand = (min(seconds(program) for _ in range(5)) for program in programs)
    assert adapter < 3 * hand
