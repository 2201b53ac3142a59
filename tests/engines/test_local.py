"""The in-process engine: a client's new state counts only once the server has accepted its update."""

from __future__ import annotations

import numpy as np

from fedstein.algorithms import dsvgd
from fedstein.client import ClientProgram
from fedstein.engines.local import LocalEngine
from fedstein.models import blr
from fedstein.selection import ksd
from fedstein.sites import particle_site
from fedstein.stein.adagrad import AdaGrad


def engine() -> LocalEngine:
    optimiser = AdaGrad(0.05, 1e-9)
    model = blr(2)
    site = particle_site(model, density="log", bandwidth=0.55, steps=2, optimiser=optimiser)
    algorithm = dsvgd(model, site, particles=4, steps=2, batch_size=8, temperature=1.0, optimiser=optimiser)
    program = ClientProgram(model, algorithm, ksd(), seed=0, batch_size=8, rows=0)
    rng = np.random.default_rng(0)
    shards = [program.shard(rng.normal(size=(12, 2)).astype(np.float32), rng.integers(0, 2, 12)) for _ in range(3)]
    return LocalEngine(program, shards)


def test_a_state_is_pending_until_it_is_committed():
    local = engine()
    particles = local.program.algorithm.broadcast(local.program.first_server)
    local.train(1, 2, particles, {})
    assert local.states == {}
    local.commit(1, [2], {})
    assert sorted(local.states) == [2]
    assert local.changed == {2}


def test_what_is_not_committed_is_dropped():
    local = engine()
    particles = local.program.algorithm.broadcast(local.program.first_server)
    local.train(1, 0, particles, {})
    local.commit(1, [], {})
    assert local.states == {}
    first = local.train(2, 0, particles, {})
    again = engine().train(2, 0, particles, {})
    assert np.array_equal(first["particles"], again["particles"]), "the dropped update left no trace"


def test_a_candidate_that_holds_the_broadcast_trains_from_it():
    local = engine()
    particles = local.program.algorithm.broadcast(local.program.first_server)
    sent = local.train(1, 0, particles, {})
    held = engine().train(1, 0, {}, particles)
    assert np.array_equal(sent["particles"], held["particles"])
