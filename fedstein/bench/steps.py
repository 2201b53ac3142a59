"""One SVGD step: Fedstein, its peers, and the matrix products of the step alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.bench.clock import Case, OnCase, Ratio, Timing, measure, ratio
from fedstein.bench.floors import Floor, blr_floor, network_floor, products_in_turn, stein_floor
from fedstein.bench.peers import Problem, blackjax_cases, blr_problem, bnn_problem, numpyro_cases
from fedstein.bench.torch_peer import torch_blr, torch_bnn
from fedstein.data import load
from fedstein.models import blr, bnn_classifier, custom
from fedstein.models.base import Blocks, Model
from fedstein.shard import Shard, make_shard, minibatch, shuffled
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.walk import walk

BATCH = 100
ROWS = 300  # of the client; its likelihood is scaled by rows over batch
SIZES = (784, 100, 9)
DIM = SIZES[0] * SIZES[1] + SIZES[1] + SIZES[1] * SIZES[2] + SIZES[2]  # weights and biases
BNN_PARTICLES, BLR_PARTICLES, FEATURES = 20, 100, 54
LOOP = {"BLR": 100, "BNN": 10}  # steps a call
PRIOR_RATE = 0.01


class Steps(NamedTuple):
    """What was timed, and the ratios made of it."""

    times: dict[str, Timing]
    ratios: dict[str, Ratio]


def measure_steps(repeats: int, on_case: OnCase) -> Steps:
    """The BLR's rows among themselves, then the BNN's."""
    times = {**measure(blr_cases(), repeats, on_case), **measure(bnn_cases(), repeats, on_case)}
    return Steps(times, ratios_of(times))


def blr_cases() -> list[Case]:
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
        *blr_products().cases("BLR product: "),
    ]


def bnn_cases() -> list[Case]:
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
        Case("BNN, its products one after another", products_in_turn(BNN_PARTICLES, SIZES, BATCH, count), count),
        Case("BNN, the optimiser alone", optimiser_steps(model, start, other, rule, count), count),
        *blackjax_cases("BNN", problem, 1),
        *numpyro_cases("BNN", problem, 1),
        *torch_bnn("BNN", named, x, y, scale, math.e),
        *network_floor(BNN_PARTICLES, SIZES, BATCH).cases("BNN product: "),
        *stein_floor(BNN_PARTICLES, model.dim).cases("BNN product: "),
        *stein_floor(BNN_PARTICLES, model.dim, centres=2).cases("BNN product: "),
    ]


def fedstein_steps(
    model: Model, start: Array, shard: Shard, rule: AdaGrad, steps: int, local: Array | None = None
) -> Any:
    """``steps`` steps in one call on a client's minibatches; with ``local`` particles also the KDE terms of DSVGD."""

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

        return walk(steps, blocks, score, factors, tilted_direction, rule, linear=linear, relative=True)[0]

    key = jax.random.key(9)
    return lambda: run(start, local, shard, key)


def optimiser_steps(model: Model, start: Array, other: Array, rule: AdaGrad, steps: int) -> Any:
    """What a step does beyond its products: read what phi is made of, history and particles; write the last two."""

    @jax.jit
    def run(particles: Array, first: Array, second: Array) -> Blocks:
        def step(number: Array, carry: tuple[Blocks, Blocks, Blocks]) -> tuple[Blocks, Blocks, Blocks]:
            theta, history, summand = carry
            # A number of the last step in it, in place, so that the sum is not taken out of the loop.
            summand = (summand[0].at[0, 0].set(theta[0][0, 0]), *summand[1:])
            return (*rule.step(number, theta, jax.tree.map(jnp.add, summand, others), history), summand)

        blocks, others = model.split(particles), model.split(second)
        return jax.lax.fori_loop(0, steps, step, (blocks, rule.init(blocks), model.split(first)))[0]

    return lambda: run(start, start, other)


def own_network() -> Model:
    """The network of ``bnn_classifier`` as a statistician writes it: functions of one theta, autodiff for the rest."""
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


def blr_products() -> Floor:
    return blr_floor(BLR_PARTICLES, FEATURES + 1, BATCH) + stein_floor(BLR_PARTICLES, FEATURES + 2)


def bnn_products(kde: bool) -> Floor:
    return network_floor(BNN_PARTICLES, SIZES, BATCH) + stein_floor(BNN_PARTICLES, DIM, centres=2 if kde else 0)


def ratios_of(times: dict[str, Timing]) -> dict[str, Ratio]:
    """Peers against Fedstein, each at its best; Fedstein against its own products."""
    found: dict[str, Ratio] = {}
    for peer in ("BlackJAX", "NumPyro", "torch"):
        for model in ("BLR", "BNN"):
            rows = [timing for name, timing in times.items() if name.startswith(f"{peer}, {model}")]
            if rows:
                found[f"{peer} / Fedstein, {model}"] = ratio(
                    min(rows, key=lambda timing: timing.best), times[f"Fedstein, {model}"]
                )
    for name, floor, prefix in (
        ("BLR", blr_products(), "BLR product: "),
        ("BNN", bnn_products(False), "BNN product: "),
        ("BNN with KDE terms", bnn_products(True), "BNN product: "),
    ):
        found[f"{name} / its products"] = ratio(
            times[f"Fedstein, {name}"], *floor.of(times, prefix), counts=floor.counts()
        )
    in_turn = times["BNN, its products one after another"]
    found["BNN / its products one after another and the optimiser"] = ratio(
        times["Fedstein, BNN"], in_turn, times["BNN, the optimiser alone"]
    )
    found["own model / built-in BNN"] = ratio(times["Fedstein, BNN as a model of one's own"], times["Fedstein, BNN"])
    return found
