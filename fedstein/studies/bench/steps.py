"""One SVGD step: Fedstein, other libraries, and the matrix products of the step alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data import load
from fedstein.data.shard import Shard, make_shard, minibatch, shuffled
from fedstein.models import blr, bnn_classifier, custom
from fedstein.models.base import Blocks, Model
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop
from fedstein.studies.bench.matrix_products import (
    Products,
    blr_products,
    chained_products,
    network_products,
    stein_products,
)
from fedstein.studies.bench.peers import Problem, blackjax_cases, blr_problem, bnn_problem, numpyro_cases
from fedstein.studies.bench.timing import Case, OnCase, Ratio, Timing, measure, ratio
from fedstein.studies.bench.torch_peer import torch_blr, torch_bnn

BATCH = 100
ROWS = 300  # the rows of the client; the likelihood is scaled by rows / batch
SIZES = (784, 100, 9)
DIM = SIZES[0] * SIZES[1] + SIZES[1] + SIZES[1] * SIZES[2] + SIZES[2]  # weights and biases
BNN_PARTICLES, BLR_PARTICLES, FEATURES = 20, 100, 54
LOOP = {"BLR": 100, "BNN": 10}  # steps in one call
PRIOR_RATE = 0.01


class Steps(NamedTuple):
    """The timings and the ratios computed from them."""

    times: dict[str, Timing]
    ratios: dict[str, Ratio]


def measure_steps(repeats: int, on_case: OnCase) -> Steps:
    """Measure the cases of the BLR, then those of the BNN.

    Args:
        repeats: How often each case is timed.
        on_case: Called with a line of progress.
    """
    times = {**measure(blr_cases(), repeats, on_case), **measure(bnn_cases(), repeats, on_case)}
    return Steps(times, ratios_of(times))


def blr_cases() -> list[Case]:
    """Return the cases of the Bayesian logistic regression."""
    data = load("covertype")
    model = blr(FEATURES, prior_rate=PRIOR_RATE)
    shard = make_shard(model.prepare(data.train_x[:ROWS]), data.train_y[:ROWS])
    start = model.init(jax.random.key(0), BLR_PARTICLES)
    named = {"w": start[:, :-1], "log_xi": start[:, -1]}
    x, y, scale = shard.x[:BATCH], shard.y[:BATCH], ROWS / BATCH
    problem: Problem = blr_problem(named, x, y, scale, PRIOR_RATE)
    return [
        Case("Fedstein, BLR", fedstein_steps(model, start, shard, AdaGrad(0.05, 1e-9), LOOP["BLR"]), LOOP["BLR"]),
        *blackjax_cases("BLR", problem, LOOP["BLR"]),
        *numpyro_cases("BLR", problem, LOOP["BLR"]),
        *torch_blr("BLR", named, x, y, scale, PRIOR_RATE),
        *blr_step_products().cases("BLR product: "),
    ]


def bnn_cases() -> list[Case]:
    """Return the cases of the Bayesian neural network."""
    data, count = load("mnist"), LOOP["BNN"]
    model, written = bnn_classifier(SIZES[0], SIZES[2], hidden=SIZES[1:2]), own_network()
    shard = make_shard(data.train_x[:ROWS], data.train_y[:ROWS])
    start, other = (model.init(jax.random.key(k), BNN_PARTICLES) for k in range(2))
    x, y, scale = shard.x[:BATCH], shard.y[:BATCH], ROWS / BATCH
    inputs, hidden, outputs = SIZES
    w1, b1, w2, b2 = model.split(start)
    named = {
        "w1": w1.reshape(-1, hidden, inputs).transpose(0, 2, 1),
        "b1": b1,
        "w2": w2.reshape(-1, outputs, hidden).transpose(0, 2, 1),
        "b2": b2,
    }
    problem = bnn_problem(named, x, y, scale, math.e)
    rule = AdaGrad(1e-3, 1e-6)
    return [
        Case("Fedstein, BNN", fedstein_steps(model, start, shard, rule, count), count),
        Case("Fedstein, BNN with KDE terms", fedstein_steps(model, start, shard, rule, count, other), count),
        Case("Fedstein, BNN as a model of one's own", fedstein_steps(written, start, shard, rule, count), count),
        Case("BNN, its products one after another", chained_products(BNN_PARTICLES, SIZES, BATCH, count), count),
        Case("BNN, the optimiser alone", optimiser_steps(model, start, other, rule, count), count),
        *blackjax_cases("BNN", problem, 1),
        *numpyro_cases("BNN", problem, 1),
        *torch_bnn("BNN", named, x, y, scale, math.e),
        *network_products(BNN_PARTICLES, SIZES, BATCH).cases("BNN product: "),
        *stein_products(BNN_PARTICLES, model.dim).cases("BNN product: "),
        *stein_products(BNN_PARTICLES, model.dim, centres=2).cases("BNN product: "),
    ]


def fedstein_steps(
    model: Model, start: Array, shard: Shard, rule: AdaGrad, steps: int, local: Array | None = None
) -> Any:
    """Make a function that takes ``steps`` SVGD steps on minibatches of a client.

    Args:
        model: The model.
        start: The initial particles.
        shard: The rows of the client.
        rule: The optimiser.
        steps: The number of steps in one call.
        local: Local particles. If given, the step includes the KDE terms of DSVGD.
    """

    @jax.jit
    def run(particles: Array, local: Array | None, shard: Shard, key: Array) -> Blocks:
        blocks, order = model.split(particles), shuffled(key, shard)
        factors = () if local is None else (Mixture(blocks, 1.0), Mixture(model.split(local), -1.0))
        linear = model.linear_prior_score

        def score(step: Array, offset: Blocks, origin: Blocks) -> Blocks:
            batch = minibatch(shard, order, step, BATCH)
            found = model.likelihood_score_around(offset, origin, batch.x, batch.y, batch.weights)
            if linear is not None:
                return found
            return jax.tree.map(jnp.add, found, model.prior_score(jax.tree.map(jnp.add, offset, origin)))

        return svgd_loop(steps, blocks, score, factors, tilted_direction, rule, linear=linear, relative=True)[0]

    key = jax.random.key(9)
    return lambda: run(start, local, shard, key)


def optimiser_steps(model: Model, start: Array, other: Array, rule: AdaGrad, steps: int) -> Any:
    """Make a function that does the rest of a step: read the terms of phi, and update history and particles."""

    @jax.jit
    def run(particles: Array, first: Array, second: Array) -> Blocks:
        def step(number: Array, carry: tuple[Blocks, Blocks, Blocks]) -> tuple[Blocks, Blocks, Blocks]:
            theta, history, summand = carry
            # One number of the last step is inserted in place, so that the compiler keeps the sum in the loop.
            summand = (summand[0].at[0, 0].set(theta[0][0, 0]), *summand[1:])
            return (*rule.step(number, theta, jax.tree.map(jnp.add, summand, others), history), summand)

        blocks, others = model.split(particles), model.split(second)
        return jax.lax.fori_loop(0, steps, step, (blocks, rule.init(blocks), model.split(first)))[0]

    return lambda: run(start, start, other)


def own_network() -> Model:
    """Write the network of ``bnn_classifier`` as a user would: functions of one theta, with automatic gradients."""
    inputs, hidden, outputs = SIZES
    edges = np.cumsum((inputs * hidden, hidden, hidden * outputs, outputs))

    def logits(theta: Array, x: Array) -> Array:
        w1, b1, w2, b2 = jnp.split(theta, edges[:-1])
        return jax.nn.relu(x @ w1.reshape(hidden, inputs).T + b1) @ w2.reshape(outputs, hidden).T + b2

    def log_likelihood(theta: Array, x: Array, y: Array) -> Array:
        return jnp.take_along_axis(jax.nn.log_softmax(logits(theta, x)), y[:, None], axis=1)[:, 0]

    return custom(
        int(edges[-1]),
        log_prior=lambda theta: -0.5 * math.e * jnp.sum(theta**2),
        log_likelihood=log_likelihood,
        init=lambda key: jax.random.normal(key, (int(edges[-1]),)) / 28,
        predict=lambda theta, x: jax.nn.log_softmax(logits(theta, x)),
        classes=outputs,
        name="own network",
    )


def blr_step_products() -> Products:
    """Return the matrix products of one step of the BLR."""
    return blr_products(BLR_PARTICLES, FEATURES + 1, BATCH) + stein_products(BLR_PARTICLES, FEATURES + 2)


def bnn_step_products(kde: bool) -> Products:
    """Return the matrix products of one step of the BNN, with or without KDE terms."""
    return network_products(BNN_PARTICLES, SIZES, BATCH) + stein_products(BNN_PARTICLES, DIM, centres=2 if kde else 0)


def ratios_of(times: dict[str, Timing]) -> dict[str, Ratio]:
    """Compute the ratios: the best case of each library over Fedstein, and Fedstein over its matrix products."""
    found: dict[str, Ratio] = {}
    for peer in ("BlackJAX", "NumPyro", "torch"):
        for model in ("BLR", "BNN"):
            rows = [timing for name, timing in times.items() if name.startswith(f"{peer}, {model}")]
            if rows:
                found[f"{peer} / Fedstein, {model}"] = ratio(
                    min(rows, key=lambda timing: timing.best), times[f"Fedstein, {model}"]
                )
    for name, products, prefix in (
        ("BLR", blr_step_products(), "BLR product: "),
        ("BNN", bnn_step_products(False), "BNN product: "),
        ("BNN with KDE terms", bnn_step_products(True), "BNN product: "),
    ):
        found[f"{name} / its products"] = ratio(
            times[f"Fedstein, {name}"], *products.of(times, prefix), counts=products.counts()
        )
    in_turn = times["BNN, its products one after another"]
    found["BNN / its products one after another and the optimiser"] = ratio(
        times["Fedstein, BNN"], in_turn, times["BNN, the optimiser alone"]
    )
    found["own model / built-in BNN"] = ratio(times["Fedstein, BNN as a model of one's own"], times["Fedstein, BNN"])
    return found
