"""Parallel DSVGD: the server's target, the two ways to count the prior, and what travels."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import method_of, particle_site

from fedstein import stein
from fedstein.data import load
from fedstein.errors import InputError
from fedstein.federation.protocol import first, run_round, run_rounds
from fedstein.models import blr, bnn_classifier, join
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of, prepare_run
from fedstein.stein.adagrad import AdaGrad

SMALL = [
    "algorithm.kind=parallel_dsvgd",
    "partition.clients=4",
    "partition.rows_per_client=60",
    "algorithm.particles=5",
    "algorithm.local_steps=3",
    "sites.kind=particles",
    "algorithm.distill_steps=2",
    "algorithm.batch_size=25",
    "rounds=3",
]


def build(model, prior, density="log", bandwidth=0.55):
    optimiser = AdaGrad(0.01, 1e-6)
    site = particle_site(model, density=density, bandwidth=bandwidth, steps=1, optimiser=optimiser)
    return method_of(
        "parallel_dsvgd", model, site, particles=6, steps=1, batch_size=10, optimiser=optimiser, prior=prior
    )


@pytest.mark.parametrize("prior", ["divided", "as_written"])
@pytest.mark.parametrize("uploads", [1, 3, 4])
def test_the_server_moves_along_the_product_of_the_uploads(prior, uploads):
    """One step against the SVGD direction of the score written out with autodiff of the log-KDE."""
    model = bnn_classifier(3, 2, hidden=(2,))
    start = model.init(jax.random.key(0), 6)
    local = {k: model.init(jax.random.key(10 + k), 6) for k in range(uploads)}

    def log_target(theta):
        point = theta[None]
        weight = 1 - uploads if prior == "divided" else 1
        log_prior = weight * model.log_prior(model.split(point))[0]
        return log_prior + sum(stein.kde_log_density(point, centres)[0] for centres in local.values())

    phi = stein.svgd_direction(start, jax.vmap(jax.grad(log_target))(start))
    expected = start + 0.01 * phi / (1e-6 + jnp.abs(phi))
    server = build(model, prior).apply({"particles": start}, {}, {k: {"local": a} for k, a in local.items()}, 1.0)
    assert np.allclose(server["particles"], expected, atol=2e-5)


def test_uploads_count_until_they_are_replaced_in_whatever_order_they_came():
    model = bnn_classifier(3, 2, hidden=(2,))
    algorithm, start = build(model, "divided"), {"particles": model.init(jax.random.key(0), 6)}
    local = {k: {"local": model.init(jax.random.key(10 + k), 6)} for k in range(3)}
    at_once = algorithm.apply(start, {}, local, 1.0)
    other_order = algorithm.apply(start, {}, dict(reversed(local.items())), 1.0)
    assert np.array_equal(at_once["particles"], other_order["particles"])
    later = algorithm.apply(start, local, {1: local[1]}, 1.0)
    assert np.array_equal(later["particles"], at_once["particles"]), "the others' uploads are kept"
    changed = algorithm.apply(start, local, {1: local[0]}, 1.0)
    assert not np.array_equal(changed["particles"], at_once["particles"])


@pytest.mark.parametrize(
    ("model", "prior", "density", "bandwidth", "words"),
    [
        (blr(3), "divided", "log", 0.55, "as_written"),
        (bnn_classifier(3, 2, hidden=(2,)), "divided", "log", 0.7, "as_written"),
        (bnn_classifier(3, 2, hidden=(2,), prior_precision=4.0), "divided", "log", 0.55, "as_written"),
        (bnn_classifier(3, 2, hidden=(2,)), "as_written", "reference", 0.55, "'log'"),
    ],
)
def test_targets_that_are_no_densities_are_refused(model, prior, density, bandwidth, words):
    with pytest.raises(InputError, match=words):
        build(model, prior, density, bandwidth)


@pytest.fixture(scope="module")
def parts():
    dataset = load("covertype")

    def make(*settings):
        config, notes = resolve(merge({}, [*SMALL, *settings]), facts_of(dataset))
        assert notes == []
        return prepare_run(config, dataset).context

    return make


def test_by_default_everybody_trains_from_the_same_particles(parts):
    everybody = parts()
    whole = 5 * 56 * 4
    received = []
    train = everybody.engine.train

    def spy(round_index, client, assignment, cached, sites):
        received.append(np.asarray({**cached, **assignment}["particles"]))
        return train(round_index, client, assignment, cached, sites)

    everybody.engine.train = spy
    _, record = run_round(everybody, first(everybody))
    assert record["selected"] == [0, 1, 2, 3]
    assert all(np.array_equal(received[0], other) for other in received[1:])
    assert (record["bytes_down"], record["bytes_up"]) == (4 * whole, 4 * whole)


def test_a_chosen_number_under_a_scheme_that_asks(parts):
    chosen = parts("selection.kind=ksd", "selection.per_round=2")
    whole = 5 * 56 * 4
    for _, record in run_rounds(chosen, first(chosen)):
        assert len(record["selected"]) == 2
        assert (record["bytes_down"], record["bytes_up"]) == (4 * whole, 4 * 4 + 2 * whole)


def test_the_particles_given_back_are_finite_and_move(parts):
    running = parts()
    states = [first(running), *(state for state, _ in run_rounds(running, first(running)))]
    particles = [np.asarray(state.server["particles"]) for state in states]
    assert all(np.isfinite(p).all() for p in particles)
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(particles))
    assert join(running.program.model.split(states[-1].server["particles"])).shape == (5, 56)
