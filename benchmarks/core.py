"""How far the BNN step and the rounds are from what they cannot avoid: ratios, measured interleaved in one process.

    python benchmarks/core.py [--repeats 15] [--threads 2]

Needs the extra ``bench`` (BlackJAX). Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repeats", type=int, default=15)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
options = parser.parse_args()
os.environ["NPROC"] = str(options.threads)  # before JAX starts

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedstein.data import load
from fedstein.models import bnn_classifier
from fedstein.models.base import join
from fedstein.protocol import first, play_round
from fedstein.runs.config import merge, resolve
from fedstein.runs.wiring import facts_of, wire
from fedstein.shard import make_shard, minibatch, shuffled
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.walk import walk

N, D, H, C, B, STEPS = 20, 784, 100, 9, 100, 10
dataset = load("mnist")
model = bnn_classifier(D, C, hidden=(H,))
optimiser = AdaGrad(1e-3, 1e-6)
shard = make_shard(dataset.train_x[:300], dataset.train_y[:300])
start, other, third = (model.init(jax.random.key(k), N) for k in range(3))
key = jax.random.key(9)


def score(data: Any, order: jax.Array) -> Callable[..., Any]:
    def at(step: jax.Array, blocks: Any) -> Any:
        batch = minibatch(data, order, step, B)
        return model.likelihood_score(blocks, batch.x, batch.y, batch.weights)

    return at


@jax.jit
def svgd_steps(particles: jax.Array, data: Any) -> jax.Array:
    target = score(data, shuffled(key, data))
    return join(walk(STEPS, model.split(particles), target, (), tilted_direction, optimiser, model.linear_prior_score))


@jax.jit
def kde_steps(particles: jax.Array, local: jax.Array, data: Any) -> jax.Array:
    blocks = model.split(particles)
    mixtures = (Mixture(blocks, 1.0), Mixture(model.split(local), -1.0))
    return join(
        walk(
            STEPS,
            blocks,
            score(data, shuffled(key, data)),
            mixtures,
            tilted_direction,
            optimiser,
            model.linear_prior_score,
        )
    )


def one_log_density(theta: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """The same posterior as a user of BlackJAX would write it, for one particle."""
    hidden = jax.nn.relu(x @ theta["w1"] + theta["b1"])
    log_probs = jax.nn.log_softmax(hidden @ theta["w2"] + theta["b2"])
    chosen = jnp.take_along_axis(log_probs, y[:, None], axis=1).sum() * (300 / B)
    return chosen - 0.5 * np.e * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))


w1, b1, w2, b2 = model.split(start)
as_dict = {
    "w1": w1.reshape(N, H, D).transpose(0, 2, 1),
    "b1": b1,
    "w2": w2.reshape(N, C, H).transpose(0, 2, 1),
    "b2": b2,
}
kernel = blackjax.svgd(jax.grad(one_log_density), optax.rmsprop(1e-3), blackjax.vi.svgd.rbf_kernel)
peer_state = kernel.init(as_dict)
peer_step = jax.jit(lambda state, x, y: kernel.step(state, x=x, y=y))

contract = jax.lax.dot_general
inputs, wide = shard.x[:B], jnp.asarray(w1).reshape(N * H, D)
stacks = {k: jnp.concatenate([start, other, third, start][:k]) for k in (1, 2, 3, 4)}
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "forward": (jax.jit(lambda x, w: contract(x, w, (((1,), (1,)), ((), ())))), (inputs, wide)),
    "backward": (jax.jit(lambda g, x: contract(g, x, (((0,), (0,)), ((), ())))), (jnp.ones((B, N * H)), inputs)),
    "gram": (jax.jit(lambda a, b: a @ b.T), (start, stacks[1])),
    "gram, 3 wide": (jax.jit(lambda a, b: a @ b.T), (start, stacks[3])),
    "coefficients, 2 wide": (jax.jit(lambda c, a: c @ a), (jnp.ones((N, 2 * N)), stacks[2])),
    "coefficients, 4 wide": (jax.jit(lambda c, a: c @ a), (jnp.ones((N, 4 * N)), stacks[4])),
}
ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "fedstein, SVGD step": (svgd_steps, (start, shard), STEPS),
    "fedstein, SVGD step with KDE": (kde_steps, (start, other, shard), STEPS),
    "blackjax, SVGD step": (peer_step, (peer_state, inputs, shard.y[:B]), 1),
    **{f"product: {name}": (function, arguments, 1) for name, (function, arguments) in PRODUCTS.items()},
}


def rounds_of(kind: str) -> Callable[[], Any]:
    """One round over 27 clients x 300 rows with full-shard reports, evaluation left out."""
    settings = [
        "data.name=mnist",
        f"selection.kind={kind}",
        "evaluate.every=1000000",
        f"engine.threads={options.threads}",
    ]
    config, _ = resolve(merge({}, settings), facts_of(dataset))
    parts = wire(config, dataset).parts
    state = first(parts)

    def one() -> Any:
        nonlocal state
        state, _ = play_round(parts, state)
        return state.server

    return one


for kind in ("ksd", "hip", "round_robin"):
    ROWS[f"round, {kind}"] = (rounds_of(kind), (), 1)

for function, arguments, _ in ROWS.values():
    jax.block_until_ready(function(*arguments))
times: dict[str, list[float]] = {name: [] for name in ROWS}
for _ in range(options.repeats):
    for name, (function, arguments, divide) in ROWS.items():
        if arguments:  # once untimed: the row before has filled the caches with arrays of its own
            jax.block_until_ready(function(*arguments))
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times[name].append((time.perf_counter() - began) / divide * 1e3)

best = {name: min(values) for name, values in times.items()}
middle = {name: statistics.median(values) for name, values in times.items()}
print(f"{'ms':34s}{'min':>10s}{'median':>10s}")
for name in ROWS:
    print(f"{name:34s}{best[name]:10.2f}{middle[name]:10.2f}")


def floor(of: dict[str, float], gram: str, coefficients: str) -> float:
    return sum(of[f"product: {name}"] for name in ("forward", "backward", gram, coefficients))


ratios = {}
for label, of in (("min", best), ("median", middle)):
    ratios[f"blackjax / fedstein ({label})"] = of["blackjax, SVGD step"] / of["fedstein, SVGD step"]
    ratios[f"step / its products ({label})"] = of["fedstein, SVGD step"] / floor(of, "gram", "coefficients, 2 wide")
    wide_floor = floor(of, "gram, 3 wide", "coefficients, 4 wide")
    ratios[f"KDE step / its products ({label})"] = of["fedstein, SVGD step with KDE"] / wide_floor
for name, value in ratios.items():
    print(f"{name:44s}{value:8.2f}")
print(json.dumps({"threads": options.threads, "ms": middle, "ms_min": best, "ratios": ratios}))
