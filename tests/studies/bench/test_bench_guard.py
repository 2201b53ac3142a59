"""Speed that was reached stays: ratios of one process, with wide margins, and counts of compiled programs."""

from __future__ import annotations

import jax
import pytest

from fedstein.data import load
from fedstein.data.shard import make_shard
from fedstein.federation.client import compilations
from fedstein.federation.protocol import first, run_round
from fedstein.models import bnn_classifier
from fedstein.stein.adagrad import AdaGrad
from fedstein.studies.bench.matrix_products import network_products, stein_products
from fedstein.studies.bench.steps import BATCH, BNN_PARTICLES, LOOP, ROWS, SIZES, Case, fedstein_steps, own_network
from fedstein.studies.bench.synthetic_clients import synthetic_federation
from fedstein.studies.bench.timing import measure, ratio

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def timed():
    """The BNN step, the same network as a model of one's own, and the step's products: interleaved."""
    data, steps = load("mnist"), LOOP["BNN"]
    model = bnn_classifier(SIZES[0], SIZES[2], hidden=SIZES[1:2])
    shard = make_shard(data.train_x[:ROWS], data.train_y[:ROWS])
    start, rule = model.init(jax.random.key(0), BNN_PARTICLES), AdaGrad(1e-3, 1e-6)
    products = network_products(BNN_PARTICLES, SIZES, BATCH) + stein_products(BNN_PARTICLES, model.dim)
    cases = [
        Case("step", fedstein_steps(model, start, shard, rule, steps), steps),
        Case("own", fedstein_steps(own_network(), start, shard, rule, steps), steps),
        *products.cases(""),
    ]
    return measure(cases, 7, lambda _: None), products


def test_the_bnn_step_is_near_its_matrix_products(timed):
    times, products = timed
    found = ratio(times["step"], *products.of(times, ""), counts=products.counts())
    assert min(found) < 3, f"{found}: it was about 1.3; a fused or a batched product has come back"


def test_a_model_of_ones_own_does_not_fall_off_the_cliff(timed):
    times, _ = timed
    found = ratio(times["own"], times["step"])
    assert min(found) < 6, f"{found}: it was about 1.4"


def test_rounds_with_a_pool_compile_once():
    """Neither the number of clients nor the round is part of a program."""
    counts = []
    for clients in (150, 1500):
        parts = synthetic_federation(clients, 20, 1)
        state = first(parts)
        for _ in range(4):
            state, _ = run_round(parts, state)
        counts.append(compilations())
    assert counts[1] == counts[0]
