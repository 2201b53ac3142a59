"""Private runs that choose by noisy sites: the schemes' formulas, the limit on visits, and what is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from test_private_runs import config_of, prepared, silent

from fedstein import stein
from fedstein.errors import InputError
from fedstein.federation.local import LocalEngine
from fedstein.federation.protocol import first, run_rounds
from fedstein.federation.reports import estimate_indicators
from fedstein.federation.round_context import RunState
from fedstein.inference.natural import unpacked
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.synthetic import synthetic_rows
from fedstein.runs import runner
from fedstein.runs.federate import PreparedRun
from fedstein.selection.base import Scheme
from fedstein.selection.draws import proportional
from fedstein.selection.within_visits import within_visits


@pytest.mark.parametrize("spare", [0, 5])
@pytest.mark.parametrize("indicated", [True, False])
def test_no_client_is_visited_too_often_and_no_visit_is_wasted(spare: int, indicated: bool) -> None:
    clients, visits, per_round = 7, 4, 2
    rounds = (clients * visits - spare) // per_round
    random = np.random.default_rng(3)

    def draw(memory: Any, candidates: Any, indicators: Any, uniforms: np.ndarray) -> Any:
        found = proportional(candidates, [1.0] * len(candidates) if indicators is None else indicators, uniforms)
        return found if indicated else found._replace(probabilities=None)

    for trial in range(20):
        scheme = within_visits(Scheme("any", draw), visits, rounds, per_round)
        memory, counts, seen = scheme.first(0, clients), np.zeros(clients, int), []
        for _ in range(rounds):
            known = (random.random(clients) ** 8).tolist() if indicated else None  # one client is mostly far ahead
            drawn = scheme.draw(memory, range(clients), known, random.random(clients))
            assert len(drawn.order) >= per_round
            if indicated:
                assert drawn.probabilities is not None
                assert sum(drawn.probabilities) == pytest.approx(1.0)
            seen += drawn.order[:per_round]
            counts[drawn.order[:per_round]] += 1
            memory = json.loads(json.dumps(scheme.after(memory, drawn.order[:per_round], 0, clients)))
        assert counts.max() <= visits
        assert counts.sum() == rounds * per_round
        if indicated:
            assert sorted(seen[:clients]) == list(range(clients)) or spare, trial  # everybody is known first
        if not spare:
            assert counts.tolist() == [visits] * clients


def after_rounds(run: PreparedRun, count: int) -> RunState:
    rounds = run_rounds(run.context, first(run.context))
    return next(state for state, record in rounds if record.round == count)


def by_hand(run: PreparedRun, state: RunState, client: int) -> dict[str, np.ndarray]:
    """The scores of the module's docstring, written out for logistic regression."""
    privacy, site = run.config.privacy, {k: np.asarray(v, float) for k, v in state.sites[client].items()}
    plan, visits, inputs = plan_of(privacy), int(site["visits"]), 31
    clip = privacy.bound(inputs)
    noise, spread = plan.gradient * clip, plan.moments * clip**2
    # Each point has a share 1 / v of the rows, whose weight is all that the share changes.
    rows = synthetic_rows(unpacked(site["moments"], inputs) / visits, spread / visits)

    def expected(beta: np.ndarray) -> np.ndarray:
        return visits * rows.weight * rows.x.T @ expit(rows.x @ beta)

    answers = list(zip(site["gradients"], site["points"], strict=True))[:visits]
    seen = np.mean([gradient + expected(point) for gradient, point in answers], axis=0)
    particles, mean = np.asarray(state.server["particles"], float), np.asarray(state.server["point"], float)[:inputs]
    p = expit(rows.x @ mean)
    curvature = visits * rows.weight * (rows.x * (p * (1 - p))[:, None]).T @ rows.x
    shrink = curvature @ np.linalg.inv(curvature + noise**2 / visits * np.eye(inputs))
    likelihood, own = np.zeros_like(particles), np.zeros_like(particles)
    for i, theta in enumerate(particles[:, :inputs]):
        likelihood[i, :inputs] = seen - expected(theta)
        own[i, :inputs] = shrink @ (seen - expected(mean) - curvature @ (theta - mean))
    model = run.federation.model
    prior = np.concatenate(model.prior_score(model.split(state.server["particles"])), axis=1)
    everybody = np.asarray(state.server["eta"]) - particles @ np.asarray(state.server["precision"])
    return {
        "likelihood": likelihood,
        "site": own,
        "tilted": likelihood + prior + everybody - own,
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ksd", "hip", "innovation"])
def test_indicators_are_the_schemes_formula_on_noisy_sites(kind: str) -> None:
    run = prepared(selection={"kind": kind})
    assert run.config.selection.per_round == 1
    assert run.config.rounds == 6
    state = after_rounds(run, 4)  # one client has been visited twice
    found = estimate_indicators(run.context, state, [0, 1, 2])
    scores = [by_hand(run, state, client) for client in range(3)]
    particles = np.asarray(state.server["particles"], np.float32)

    def given(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32)

    if kind == "ksd":
        expected = [float(stein.ksd(particles, given(each["tilted"]))) for each in scores]
    elif kind == "hip":
        mean = given(np.mean([each["likelihood"] for each in scores], axis=0))
        expected = [float(stein.hip(particles, given(each["likelihood"]), mean)) for each in scores]
    else:
        kernel = np.asarray(stein.frame_of(particles).kernel, float)
        gaps = [each["likelihood"] - each["site"] for each in scores]
        expected = [float(np.sum(kernel * (gap @ gap.T))) / len(particles) ** 2 for gap in gaps]
    np.testing.assert_allclose(np.array(found, float), expected, rtol=2e-3)
    assert estimate_indicators(run.context, first(run.context), [0, 1, 2]) == [None] * 3


@pytest.mark.slow
def test_choosing_sends_nothing_and_costs_nothing_more_than_round_robin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: Any, *rest: Any) -> Any:
        raise AssertionError("a private run asks nobody for a report")

    monkeypatch.setattr(LocalEngine, "ask", ask)
    spent, sent, visited = {}, {}, {}
    for kind in ("round_robin", "ksd", "random"):
        run = prepared(selection={"kind": kind, "per_round": 1}, rounds=6)
        runner.start(run, tmp_path / kind, silent)
        lines = [json.loads(line) for line in (tmp_path / kind / "rounds.jsonl").read_text().splitlines()]
        sent[kind] = [(line["bytes_down"], line["bytes_up"]) for line in lines]
        visited[kind] = sorted(client for line in lines for client in line["selected"])
        ledgers = [run.federation.program.guard.ledger(client) for client in range(3)]  # type: ignore[union-attr]
        spent[kind] = [sorted((e.what, e.multiplier, e.visit) for e in ledger.entries) for ledger in ledgers]
        if kind == "ksd":
            assert lines[0]["reports"] == [None] * 3
            assert all(value > 0 for value in lines[-1]["reports"])
            assert lines[-1]["row_gradients"]["report"] == 0
    assert spent["ksd"] == spent["round_robin"] == spent["random"]
    assert sent["ksd"] == sent["round_robin"]
    assert visited["ksd"] == visited["random"] == [0, 0, 1, 1, 2, 2]


def test_what_has_no_use_without_reports_is_refused() -> None:
    for key, value, kind in (("pool", 2, "ksd"), ("report_rows", 10, "ksd"), ("projection", 4, "hip")):
        with pytest.raises(InputError, match=f"no use for selection.{key} = {value}: in a private run nobody reports"):
            config_of(selection={"kind": kind, key: value})
    assert config_of(selection={"kind": "hip"}).sites.renew is False  # type: ignore[attr-defined]
    # Two clients a round of three: full rounds cannot use up an odd number of visits.
    assert config_of(selection={"per_round": 2}, privacy={"visits": 3}).rounds == 4
