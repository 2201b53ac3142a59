"""The in-process engine owns no results: what a client has trained counts only once it is in the site table."""

from __future__ import annotations

import numpy as np
import pytest
from building import dsvgd, particle_site, program_of

from fedstein.federation.local import LocalEngine
from fedstein.federation.site_table import SiteTable
from fedstein.models import blr
from fedstein.stein.adagrad import AdaGrad

NONE = SiteTable(())


@pytest.fixture
def engine() -> LocalEngine:
    optimiser = AdaGrad(0.05, 1e-9)
    model = blr(2)
    site = particle_site(model, density="log", bandwidth=0.55, steps=2, optimiser=optimiser)
    method = dsvgd(model, site, particles=4, steps=2, batch_size=8, temperature=1.0, optimiser=optimiser)
    program = program_of(model, method, "ksd", seed=0, batch_size=8)
    rng = np.random.default_rng(0)
    shards = [program.shard(rng.normal(size=(12, 2)).astype(np.float32), rng.integers(0, 2, 12)) for _ in range(3)]
    return LocalEngine(program, shards)


def test_training_that_nobody_accepted_leaves_no_trace(engine: LocalEngine) -> None:
    particles = engine.program.method.broadcast(engine.program.first_server, ())
    first = engine.train(2, 0, particles, {}, NONE)
    engine.train(1, 0, particles, {}, NONE)
    engine.commit(1, [])
    again = engine.train(2, 0, particles, {}, NONE)
    assert first is not None
    assert again is not None
    assert np.array_equal(first.update["particles"], again.update["particles"])


def test_a_client_trains_from_the_state_in_the_table(engine: LocalEngine) -> None:
    particles = engine.program.method.broadcast(engine.program.first_server, ())
    trained = engine.train(1, 0, particles, {}, NONE)
    assert trained is not None
    known = NONE.replace({0: trained.private})
    fresh, later = engine.train(2, 0, particles, {}, NONE), engine.train(2, 0, particles, {}, known)
    assert fresh is not None
    assert later is not None
    assert not np.array_equal(fresh.update["particles"], later.update["particles"])


def test_a_candidate_that_holds_the_broadcast_trains_from_it(engine: LocalEngine) -> None:
    particles = engine.program.method.broadcast(engine.program.first_server, ())
    sent, held = engine.train(1, 0, particles, {}, NONE), engine.train(1, 0, {}, particles, NONE)
    assert sent is not None
    assert held is not None
    assert np.array_equal(sent.update["particles"], held.update["particles"])
