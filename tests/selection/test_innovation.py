"""The innovation scheme against its definition, its zero, its cost, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedstein import stein
from fedstein.errors import InputError
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.selection import DRAWS
from fedstein.stein.discrepancy import norm_in


def by_hand(particles: np.ndarray, difference: np.ndarray) -> float:
    """(1/N^2) sum_ij k_ij D_i . D_j in float64, pair by pair."""
    n = len(particles)
    squared = np.sum((particles[:, None] - particles[None]) ** 2, axis=2)
    median = np.median(np.sqrt(squared[np.triu_indices(n, 1)]))
    kernel = np.exp(-squared / (median**2 / np.log(n)))
    return sum(kernel[i, j] * float(difference[i] @ difference[j]) for i in range(n) for j in range(n)) / n**2


def logistic_score(particles: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of the log-likelihood of labels 0 and 1 at theta = [w, log xi], intercept last or wherever x has it."""
    weights = particles[:, : x.shape[1]]
    residual = y[None, :] - 1 / (1 + np.exp(-weights @ x.T))
    return np.concatenate([residual @ x, np.zeros((len(particles), 1))], axis=1)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_report_is_its_definition(structure: str, miniature: Callable[..., Any], precision: Any) -> None:
    """Client 0 has trained and client 1 has not: its site is still 1, so it reports its whole likelihood."""
    made = miniature(
        model="blr",
        site="curvature",
        scheme="innovation",
        rounds=3,
        settings={
            "sites": {"structure": structure},
            "engine": {"precision": precision.dtype.name},
            "algorithm": {"temperature": 2.0},
        },
    )
    state, records = made.play()
    trained = records[0]["selected"][0]
    fresh = next(k for k in range(4) if all(k not in record["selected"] for record in records))
    particles = np.asarray(state.server["particles"], np.float64)
    program = made.context.program
    seen = program.prepare(1, program.method.broadcast(state.server, program.scheme.uses))
    for client in (trained, fresh):
        shard, private = made.engine.shards[client], state.sites.get(client)
        x, y = (np.asarray(a, np.float64)[: int(shard.rows)] for a in (shard.x, shard.y))
        score = logistic_score(particles, x, y) / 2.0
        site = np.zeros_like(particles)
        if private is not None:
            eta, curved = (np.asarray(private[name], np.float64) for name in ("eta", "precision"))
            site = eta - (particles @ curved if structure == "full" else particles * curved)
        report = program.report(9, client, seen, private, shard)
        assert set(report) == {"innovation"}
        precision.close(report["innovation"], by_hand(particles, score - site), factor=20)
    assert state.sites.get(fresh) is None


def test_an_exact_site_leaves_nothing_to_teach(
    linear_gaussian: Any, miniature: Callable[..., Any], double: Any
) -> None:
    """A Gaussian likelihood is its own expansion, wherever the particles have gone since."""
    linear = linear_gaussian._replace(prior_mean=np.array([1.0, -1.0, 0.5]))
    made = miniature(
        model=linear.model(),
        site="curvature",
        scheme="innovation",
        rounds=5,
        settings={
            "sites": {"structure": "full"},
            "engine": {"precision": "float64"},
            "algorithm": {"batch_size": 100, "step_size": 0.05, "epsilon": 1e-6},
        },
    )
    _, records = made.play()
    assert sorted(record["selected"][0] for record in records[:4]) == [0, 1, 2, 3]  # a pass
    for number, record in enumerate(records):
        done = {k for earlier in records[:number] for k in earlier["selected"]}
        for k, value in enumerate(record["reports"]):
            if k in done:
                assert value == pytest.approx(0, abs=1e-12)
            else:
                assert value > 1
    assert records[4]["probabilities"] is not None


def test_it_is_ksd_up_to_a_constant_where_svgd_for_q_is_at_rest(double: Any) -> None:
    draw = np.random.default_rng(2)
    particles, h = draw.normal(size=(6, 4)), 3.0
    squared = np.sum((particles[:, None] - particles[None]) ** 2, axis=2)
    kernel = np.exp(-squared / h)
    repulsion = (2 / h) * (np.diag(kernel.sum(axis=1)) - kernel) @ particles
    of_q = -np.linalg.solve(kernel, repulsion)
    np.testing.assert_allclose(stein.svgd_direction(particles, of_q, h), 0, atol=1e-9)
    differences = draw.normal(size=(3, 6, 4))
    gaps = [stein.ksd(particles, of_q + one, h) - norm_in(kernel, (one,)) for one in differences]
    double.close(gaps, [gaps[0]] * 3, factor=100)


def test_only_the_particles_go_down_and_one_scalar_comes_up(miniature: Callable[..., Any]) -> None:
    """The paper's KSD needs the summed site score besides; HIP sends N x d up."""
    made = {
        scheme: miniature(site="curvature", scheme=scheme, model="blr", settings={"sites": {"structure": "full"}})
        for scheme in ("innovation", "ksd", "hip")
    }
    d = made["ksd"].context.program.model.dim
    cloud, site = 5 * d * 4, (d + d * d) * 4
    costs = {}
    for scheme, federation in made.items():
        _, records = federation.play()
        costs[scheme] = [(record["bytes_down"], record["bytes_up"]) for record in records]
    # Four candidates; then the selected one, which holds the particles, is sent the cavity and sends both back.
    assert costs["innovation"] == [(4 * cloud + site, 4 * 4 + cloud + site)] * 2
    assert costs["ksd"] == [(4 * 2 * cloud + site, 4 * 4 + cloud + site)] * 2
    assert costs["hip"] == [(4 * cloud + site, 4 * cloud + cloud + site)] * 2


def test_a_pool_and_a_batch_of_rows(miniature: Callable[..., Any]) -> None:
    rows = {"selection": {"pool": 2, "report_rows": 5}}
    made = miniature(model="blr", site="curvature", scheme="innovation", settings=rows)
    _, records = made.play()
    for record in records:
        assert len(record["candidate_ids"]) == len(record["reports"]) == 2
        assert record["selected"][0] in record["candidate_ids"]
        assert record["row_gradients"]["report"] == 2 * 5 * 5


@pytest.mark.parametrize(
    ("scheme", "rule"), [*(("innovation", rule) for rule in DRAWS), ("ksd", "pass"), ("hip", "aged")]
)
def test_every_rule_plays_and_repeats_itself(scheme: str, rule: str, miniature: Callable[..., Any]) -> None:
    made = miniature(site="curvature", scheme=scheme, model="blr", rounds=5, settings={"selection": {"draw": rule}})
    state, records = made.play()
    json.dumps([state.memory, *map(dict, records)], allow_nan=False)
    for record in records:
        assert sum(record["probabilities"]) == pytest.approx(1)
        assert record["probabilities"][record["selected"][0]] > 0
    if rule == "pass":
        assert sorted(record["selected"][0] for record in records[:4]) == [0, 1, 2, 3]
    again, repeated = made.again(seed=0).play()
    np.testing.assert_array_equal(state.server["particles"], again.server["particles"])
    assert [{**r, "seconds": 0} for r in repeated] == [{**r, "seconds": 0} for r in records]


def test_sites_without_a_score_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        resolve({"selection": {"kind": "innovation"}, "sites": {"kind": "particles"}}, Facts("classification", 2))
    line = str(caught.value)
    assert "\n" not in line
    for word in ("selection.kind = 'innovation'", "sites.kind = 'curvature'", "got 'particles'", "ksd"):
        assert word in line


def test_the_rule_is_spelt_out_and_belongs_to_schemes_with_indicators() -> None:
    def resolved(**selection: str) -> tuple[Any, list[str]]:
        return resolve({"selection": selection, "sites": {"kind": "curvature"}}, Facts("classification", 2))

    assert resolved(kind="ksd")[0].selection.draw == resolved(kind="hip")[0].selection.draw == "proportional"
    assert 'draw = "aged"' in resolved(kind="innovation", draw="aged")[0].to_toml()
    with pytest.raises(InputError, match=r"selection\.draw is not used: selection\.kind is 'round_robin'"):
        resolved(kind="round_robin", draw="pass")
    with pytest.raises(InputError, match=r"selection\.draw: 'gredy' .did you mean 'greedy'.*proportional, greedy"):
        resolved(kind="ksd", draw="gredy")
