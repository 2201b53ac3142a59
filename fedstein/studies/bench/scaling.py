"""Measurements of how the cost grows with the clients K, the particles N and the parameters d.

Exponents are fitted to the larger sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.federation.local import LocalEngine
from fedstein.federation.protocol import first, run_round
from fedstein.models import blr
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop
from fedstein.studies.bench.synthetic_clients import FEATURES, synthetic_federation
from fedstein.studies.bench.timing import Case, OnCase, Timing, measure

POOL = 100
POOLED = f"a pool of {POOL}"
CLIENTS, FEW_CLIENTS = (10, 30, 100, 300, 1000, 3000, 10_000), (10, 100, 300)
PARTICLES, FEW_PARTICLES = (10, 20, 50, 100, 200, 500), (10, 50, 200)
PARAMETERS, FEW_PARAMETERS = (100, 1000, 10_000, 100_000, 1_000_000), (100, 10_000, 1_000_000)


class Curve(NamedTuple):
    """Milliseconds by size."""

    name: str
    axis: str
    sizes: list[int]
    times: list[Timing]

    @property
    def exponent(self) -> float:
        """The slope of log time over log size, from the middle size on."""
        start = (len(self.sizes) - 1) // 2
        x, y = (np.log(values[start:]) for values in (self.sizes, [timing.best for timing in self.times]))
        return float(np.polyfit(x, y, 1)[0])


def measure_scaling(repeats: int, quick: bool, threads: int, on_case: OnCase) -> list[Curve]:
    """Measure all curves.

    Args:
        repeats: How often each size is timed.
        quick: Whether to measure fewer sizes.
        threads: The number of XLA threads.
        on_case: Called with a line of progress.
    """
    clients = FEW_CLIENTS if quick else CLIENTS
    pooled = [k for k in clients if k >= POOL]
    fresh = f"{POOLED}, rows made when asked"
    return [
        over_clients("every client asked", clients, 0, False, repeats, threads, on_case),
        over_clients(POOLED, pooled, POOL, True, repeats, threads, on_case),
        *([] if quick else [over_clients(fresh, pooled, POOL, False, repeats, threads, on_case)]),
        over_particles(FEW_PARTICLES if quick else PARTICLES, repeats, on_case),
        over_parameters(FEW_PARAMETERS if quick else PARAMETERS, repeats, on_case),
    ]


def over_clients(
    name: str, sizes: Sequence[int], pool: int, there: bool, repeats: int, threads: int, on_case: OnCase
) -> Curve:
    """Measure whole KSD rounds of the BLR with N = 20 and 500 rows for each client.

    Args:
        name: The name of the curve.
        sizes: The numbers of clients.
        pool: The number of clients that report in a round; 0 for all.
        there: Whether the rows of all clients are in memory before the measurement.
        repeats: How often each size is timed.
        threads: The number of XLA threads.
        on_case: Called with a line of progress.
    """
    cases = []
    for clients in sizes:
        on_case(f"{name}: {clients} clients")
        cases.append(Case(str(clients), rounds_of(clients, pool, there, threads), again=False))
    few = min(repeats, 3) if pool == 0 else repeats
    found = measure(cases, few, on_case)
    return Curve(name, "clients K", list(sizes), [found[str(k)] for k in sizes])


def rounds_of(clients: int, pool: int, there: bool, threads: int) -> Callable[[], Array]:
    """Return a function that runs one round with that many clients."""
    context = synthetic_federation(clients, pool if pool < clients else 0, threads)
    if there:
        assert isinstance(context.engine, LocalEngine)
        for shard in context.engine.shards:
            jax.block_until_ready(shard.x)
    state = first(context)

    def one() -> Array:
        nonlocal state
        state, _ = run_round(context, state)
        return context.method.posterior(state.server)

    return one


def over_particles(sizes: Sequence[int], repeats: int, on_case: OnCase) -> Curve:
    """Measure SVGD steps of the BLR on 100 rows, by the number of particles."""
    model, rule = blr(FEATURES), AdaGrad(0.05, 1e-9)
    x, y = jnp.asarray(np.random.default_rng(0).standard_normal((100, FEATURES + 1), np.float32)), jnp.arange(100) % 2
    steps = 20

    @jax.jit
    def run(particles: Array, x: Array, y: Array) -> object:
        def score(_: Array, theta: tuple[Array, ...]) -> tuple[Array, ...]:
            return jax.tree.map(jnp.add, model.likelihood_score(theta, x, y, jnp.ones(100)), model.prior_score(theta))

        return svgd_loop(steps, model.split(particles), score, (), tilted_direction, rule)[0]

    def case(n: int) -> Case:
        start = model.init(jax.random.key(0), n)
        return Case(str(n), lambda: run(start, x, y), steps)

    found = measure([case(n) for n in sizes], repeats, on_case)
    return Curve(f"SVGD step, d = {model.dim}", "particles N", list(sizes), [found[str(n)] for n in sizes])


def over_parameters(sizes: Sequence[int], repeats: int, on_case: OnCase) -> Curve:
    """Measure SVGD steps on a standard normal, by the number of parameters.

    Its score costs nothing, so SVGD itself is timed.
    """
    steps, rule = 5, AdaGrad(1e-3, 1e-6)

    @jax.jit
    def run(particles: Array) -> object:
        return svgd_loop(steps, (particles,), None, (), tilted_direction, rule, linear=-1.0)[0]

    def case(dim: int) -> Case:
        start = jax.random.normal(jax.random.key(0), (20, dim))
        return Case(str(dim), lambda: run(start), steps)

    found = measure([case(d) for d in sizes], repeats, on_case)
    return Curve("SVGD step, N = 20", "parameters d", list(sizes), [found[str(d)] for d in sizes])
