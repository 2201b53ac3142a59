"""The benchmark's own parts: what it times, how it counts, what it writes."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.federation.protocol import first, run_round
from fedstein.models import bnn_classifier
from fedstein.studies.bench.goals import GOALS, judge
from fedstein.studies.bench.matrix_products import Product, Products, looped, network_products, stein_products
from fedstein.studies.bench.peers import bnn_problem
from fedstein.studies.bench.rounds import PHASES, PhaseTimer, merged, round_products
from fedstein.studies.bench.scaling import Curve
from fedstein.studies.bench.steps import SIZES, bnn_step_products, own_network
from fedstein.studies.bench.synthetic_clients import FEATURES, WEIGHTS, rows_of, synthetic_federation
from fedstein.studies.bench.timing import Case, Timing, measure, ratio
from fedstein.studies.bench.write import markdown, tables, write_bench


def test_rows_are_timed_in_turn_and_divided_by_their_steps():
    order: list[str] = []
    cases = [
        Case("a", lambda: order.append("a"), steps=10),
        Case("b", lambda: order.append("b"), again=False),
    ]
    found = measure(cases, 2, lambda _: None)
    assert order == ["a", "b", "a", "a", "b", "a", "a", "b"]
    assert {name: len(timing.wall) for name, timing in found.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_that_of_the_minima_and_of_the_medians():
    over, under = Timing([6.0, 8.0, 100.0], [0.0]), Timing([1.0, 2.0, 3.0], [0.0])
    found = ratio(over, under, under, counts=[1, 2])
    assert found.best == 6.0 / 3.0
    assert found.middle == 8.0 / 6.0


def test_a_looped_product_is_computed_every_time():
    calls = []

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        found = a @ b
        jax.debug.callback(lambda: calls.append(1))
        return found

    case = looped("p", Product("p", product, (jnp.ones((2, 3)), jnp.ones((3, 4)))), steps=7)
    np.testing.assert_array_equal(case.call()[1], np.full(4, 3.0))  # the first row has a number of the one before in it
    jax.effects_barrier()
    assert len(calls) == 7
    assert case.steps == 7


def test_the_products_of_a_step_are_those_that_xla_counts():
    """The arithmetic of the products against XLA's own count for the gradient of the network."""
    n, rows = 3, 50
    model = bnn_classifier(12, 5, hidden=(8,))
    x, y = jnp.ones((rows, 12)), jnp.zeros(rows, jnp.int32)
    blocks = model.split(model.init(jax.random.key(0), n))
    compiled = jax.jit(lambda b: model.likelihood_score(b, x, y, jnp.ones(rows))).lower(blocks).compile()
    counted = compiled.cost_analysis()["flops"]
    products = sum(flops(product) for product, _ in network_products(n, (12, 8, 5), rows).products)
    assert products < counted < 1.3 * products  # beyond the products there are activations and a softmax


def flops(product: Product) -> float:
    """What XLA counts for one product."""
    return jax.jit(product.function).lower(*product.arguments).compile().cost_analysis()["flops"]


def test_kde_terms_make_the_products_wider():
    plain, wide = ({p.name.split(",")[0]: p for p, _ in stein_products(4, 30, centres=c).products} for c in (0, 2))
    assert plain["Gram"].arguments[1].shape == (4, 30)
    assert wide["Gram"].arguments[1].shape == (12, 30)
    assert plain["coefficients"].arguments[0].shape == (4, 8)
    assert wide["coefficients"].arguments[0].shape == (4, 16)
    assert len(bnn_step_products(True).products) == 7


def test_a_rounds_products_are_counted():
    counts = {product.name: count for product, count in round_products("ksd", "curvature", 27).products}
    assert counts["layer 1 forward, 300 rows"] == 28  # every report, and the refit
    assert counts["layer 1 forward, 100 rows"] == 10
    assert counts["score Gram, d = 79409"] == 27
    only_training = {product.name for product, _ in round_products("round_robin", "curvature", 27).products}
    assert "score Gram, d = 79409" not in only_training
    product = Product("p", lambda a: a, (jnp.ones(1),))
    assert merged(Products(((product, 1), (product, 2)))).counts() == [3]


def test_a_model_of_ones_own_is_the_built_in_network():
    built, own = bnn_classifier(SIZES[0], SIZES[2], hidden=SIZES[1:2]), own_network()
    particles = built.init(jax.random.key(1), 3)
    draws = np.random.default_rng(0)
    x, y = jnp.asarray(draws.standard_normal((20, 784)), jnp.float32), jnp.asarray(draws.integers(0, 9, 20), jnp.int32)
    for model_blocks, model in ((built.split(particles), built), (own.split(particles), own)):
        score = jnp.concatenate(model.likelihood_score(model_blocks, x, y, jnp.ones(20)), axis=1)
        prior = jnp.concatenate(model.prior_score(model_blocks), axis=1)
        if model is built:
            expected = (score, prior)
    np.testing.assert_allclose(score, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prior, expected[1], rtol=1e-6)


def test_the_peers_get_the_same_posterior():
    model = bnn_classifier(6, 3, hidden=(4,))
    particles = model.init(jax.random.key(0), 2)
    x, y = jnp.asarray(np.random.default_rng(0).standard_normal((10, 6)), jnp.float32), jnp.arange(10) % 3
    blocks = model.split(particles)
    named = {
        "w1": blocks[0].reshape(2, 4, 6).transpose(0, 2, 1),
        "b1": blocks[1],
        "w2": blocks[2].reshape(2, 3, 4).transpose(0, 2, 1),
        "b2": blocks[3],
    }
    problem = bnn_problem(named, x, y, 3.0, float(np.e))
    theirs = jax.vmap(problem.log_density, (0, None, None))(named, x, y)
    ours = model.log_likelihood(blocks, x, y, jnp.full(10, 3.0)) + model.log_prior(blocks)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


def test_a_clients_rows_depend_on_the_client_alone():
    x, y = rows_of(7)
    again_x, again_y = rows_of(7)
    np.testing.assert_array_equal(x, again_x)
    np.testing.assert_array_equal(y, again_y)
    assert x.shape == (500, FEATURES)
    assert not np.array_equal(x, rows_of(8)[0])
    many = [rows_of(k) for k in range(40)]
    logits = np.concatenate([x @ WEIGHTS for x, _ in many])
    labels = np.concatenate([y for _, y in many])
    assert abs(labels.mean() - (1 / (1 + np.exp(-logits))).mean()) < 0.01


def test_the_phases_add_up_to_the_round():
    context = synthetic_federation(5, 0, 1)
    watch = PhaseTimer()
    state, record = run_round(watch.timed_context(context), first(context))
    plain = synthetic_federation(5, 0, 1)
    expected, same = run_round(plain, first(plain))
    np.testing.assert_array_equal(state.server["particles"], expected.server["particles"])
    assert record["reports"] == same["reports"]
    assert all(watch.spent[phase] > 0 for phase in ("report", "choose", "train"))
    assert sum(watch.spent.values()) < record["seconds"]
    assert set(watch.spent) == set(PHASES)


def test_exponents_are_those_of_the_upper_half():
    sizes = [10, 100, 1000, 10_000]
    curve = Curve("c", "K", sizes, [Timing([5.0 + 1e-3 * k**2], [0.0]) for k in sizes])
    assert curve.exponent == pytest.approx(2, abs=0.1)


DOCUMENT: dict[str, Any] = {
    "quick": True,
    "seconds": 61.0,
    "machine": {
        "processor": "P",
        "cores": 2,
        "memory": 2**34,
        "system": "S",
        "threads": 2,
        "device": "cpu",
        "python": "3.11",
        "packages": {"jax": "0.10"},
    },
    "steps": {"Fedstein, BNN": {"wall_min": 0.5, "wall_median": 12.0, "cpu_min": 1.0, "cpu_median": 300.0}},
    "rounds": [
        {
            "name": "ksd",
            **dict.fromkeys(PHASES, 10.0),
            "wall_median": 50.0,
            "cpu_median": 80.0,
            "products": 40.0,
        }
    ],
    "growth": [
        {
            "name": "c",
            "axis": "clients K",
            "sizes": [10, 100],
            "times": [{"wall_min": 1.0}, {"wall_min": 9.0}],
            "exponent": 0.95,
        }
    ],
    "startup": {
        "imports": {"jax": 0.4, "fedstein": 0.001, "all": 0.2},
        "cold": {"BNN": {"first_round": 6.0, "peak": 2**29}},
        "warm": {"BNN": {"first_round": 3.0, "peak": 2**29}},
        "memory_by_clients": {"100": {"peak": 2**29, "sites": 20}},
    },
    "ratios": {
        "BlackJAX / Fedstein, BNN": {"min": 24.0, "median": 26.0},
        "BNN / its products": {"min": 1.2, "median": 1.4},
    },
}


def test_goals_are_judged_by_the_numbers():
    verdicts = {verdict.goal.name: verdict for verdict in judge(DOCUMENT)}
    assert len(verdicts) == len(GOALS)
    assert verdicts["BNN step, times BlackJAX"].reached is False
    assert verdicts["BNN step over its products"].reached is True
    assert verdicts["BNN step over its products"].middle == 1.4
    assert verdicts["time to the first round, BNN, second run"].reached is True
    assert verdicts["BNN step, times NumPyro"].reached is None


def test_what_is_written(tmp_path):
    verdicts = judge(DOCUMENT)
    goals = [
        {
            "name": v.goal.name,
            "limit": v.goal.limit,
            "at_least": v.goal.at_least,
            "unit": v.goal.unit,
            "got": v.got,
            "median": v.middle,
            "reached": v.reached,
        }
        for v in verdicts
    ]
    document = {**DOCUMENT, "goals": goals}
    paths = write_bench(document, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["bench.json", "bench.md", "growth.png"]
    assert json.loads(paths[0].read_text())["ratios"] == DOCUMENT["ratios"]
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    text = markdown(document)
    assert "| BNN step, times BlackJAX | at least 25 | 24.00 (26.00) | no |" in text
    assert "| BNN step, times NumPyro | at least 20 | - | not measured |" in text
    assert "| time to the first round, BNN | at most 8 s | 6.00 s | yes |" in text
    assert "P, 2 cores of it, 16 GiB" in text
    assert all(len(row) == len(columns) for _, columns, rows in tables(document) for row in rows)
