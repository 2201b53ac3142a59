"""The selection rules of other authors: their formulas against values worked out by hand or by brute force."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from building import scheme_of

from fedstein.errors import InputError
from fedstein.federation.protocol import first, run_round
from fedstein.federation.round_context import RunState
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.selection.active import active_law
from fedstein.selection.barred import without
from fedstein.selection.divfl import distances, facility_order
from fedstein.selection.fedcor import correlation_order, covariance
from fedstein.selection.oort import oort_law, oort_scores
from fedstein.selection.optimal import inclusion
from fedstein.selection.power_of_choice import above_zero

ASKING = ("gradient_norm", "folb", "power_of_choice", "active", "oort", "divfl", "fedcor", "optimal")
HALF = np.full(8, 0.5)


def reports_of(federation: Any) -> tuple[Any, list[dict[str, np.ndarray]]]:
    """The broadcast and every client's report in round 1."""
    context, state = federation.context, first(federation.context)
    wire = context.method.broadcast(state.server, context.scheme.uses)
    found = context.engine.ask(1, wire, [0, 1, 2, 3], state.sites)
    return wire, [{name: np.asarray(array) for name, array in found[k].items()} for k in range(4)]


def test_reports_are_losses_and_gradients_of_the_clients_rows(miniature: Callable[..., Any]) -> None:
    """Against autodiff of the log-likelihood, row by row, at every particle."""
    sizes = (12, 11, 7, 16)
    made = {name: miniature(model="blr", scheme=name, sizes=sizes) for name in ASKING}
    federation = made["oort"]
    model = federation.context.program.model
    particles = federation.context.program.first_server["particles"]
    found = {name: reports_of(each)[1] for name, each in made.items()}
    for k, n in enumerate(sizes):
        shard = federation.engine.shards[k]
        x, y = shard.x[:n], shard.y[:n]

        def row_loss(theta: Any, row: Any, label: Any) -> Any:
            return -model.log_likelihood(model.split(theta[None]), row[None], label[None], np.ones(1, np.float32))[0]

        losses = np.array([[row_loss(theta, x[i], y[i]) for theta in particles] for i in range(n)])
        gradients = np.array([sum(jax.grad(row_loss)(theta, x[i], y[i]) for i in range(n)) for theta in particles])
        norm = np.sqrt(np.mean(np.sum(gradients**2, axis=1)))
        near = {"rtol": 2e-4, "atol": 1e-5}
        np.testing.assert_allclose(found["gradient_norm"][k]["norm"], norm, **near)
        np.testing.assert_allclose(found["optimal"][k]["norm"], norm, **near)
        np.testing.assert_allclose(found["folb"][k]["gradient"], gradients / n, **near)
        np.testing.assert_allclose(found["divfl"][k]["gradient"], gradients / n, **near)
        np.testing.assert_allclose(found["power_of_choice"][k]["loss"], losses.mean(), **near)
        np.testing.assert_allclose(found["active"][k]["value"], losses.mean(axis=1).sum() / math.sqrt(n), **near)
        np.testing.assert_allclose(found["oort"][k]["utility"], n * np.sqrt(np.mean(losses**2)), **near)
        np.testing.assert_allclose(found["fedcor"][k]["loss"], losses.mean(), **near)
        assert found["fedcor"][k]["rows"] == n


def test_folb_takes_inner_products_with_the_mean_gradient() -> None:
    scheme = scheme_of("folb")
    gradients = [[[1.0, 0.0], [0.0, 2.0]], [[-1.0, 0.0], [0.0, 4.0]], [[0.0, -3.0], [3.0, 0.0]]]
    mean = np.mean(gradients, axis=0)
    expected = [abs(float(np.sum(np.array(g) * mean))) for g in gradients]
    assert scheme.indicators({}, [{"gradient": np.array(g)} for g in gradients]) == pytest.approx(expected)
    assert scheme.draw({}, [4, 5, 6], expected, HALF[:3]).probabilities == pytest.approx(
        np.array(expected) / sum(expected)
    )


def test_the_largest_losses_come_first_and_negative_ones_keep_their_order() -> None:
    scheme = scheme_of("power_of_choice")
    for losses in ([0.3, 2.0, 1.0], [-0.3, 1.4, 0.4], [-5.0, -1.0, -2.0]):
        values = scheme.indicators({}, [{"loss": loss} for loss in losses])
        assert scheme.draw({}, [7, 8, 9], values, HALF[:3]).order == [8, 9, 7]
        assert np.diff(above_zero(losses)) == pytest.approx(np.diff(losses))


def test_active_draws_by_the_mixture() -> None:
    law = active_law([1.0, 3.0, None, 2.0, 0.5], 0.5, 2.0, 0.2)
    weights = np.array([1.0, math.exp(-2.0)])  # of 3 and 2: half of four are left out
    top, second = 0.8 * weights / weights.sum() + 0.05
    assert law[2] is None
    assert [law[i] for i in (0, 1, 3, 4)] == pytest.approx([0.05, top, second, 0.05])
    assert active_law([None, None], 0.5, 1.0, 0.1) == [None, None]
    assert sum(active_law([4.0], 0.75, 1.0, 0.0)) == pytest.approx(1.0)
    assert sum(active_law([1e6, -1e6, 5.0], 0.0, 3.0, 0.0)) == pytest.approx(1.0)


def test_oort_scores_and_law() -> None:
    assert oort_scores([1.0, None, 3.0], [0, 1, 2], 4)[1] is None
    got = oort_scores([2.0, 6.0, 4.0], [1, 0, 3], 9)
    top = float(np.percentile([2.0, 6.0, 4.0], 95))
    bonus = [math.sqrt(0.1 * math.log(9) / 1), 0.0, math.sqrt(0.1 * math.log(9) / 3)]
    assert got == pytest.approx(
        [b + (min(u, top) - 2) / (top - 2) for u, b in zip([2.0, 6.0, 4.0], bonus, strict=True)]
    )
    # Two that trained, one newcomer: the newcomer has epsilon, the others share the rest by scores above the cut-off.
    assert oort_law([3.0, 1.0, 9.0], [1, 2, 0], 0.25, 0.95, 1) == pytest.approx([0.75, 0.0, 0.25])
    assert oort_law([3.0, 1.0, 9.0], [1, 2, 0], 0.25, 0.95, 2) == pytest.approx([0.75 * 0.75, 0.75 * 0.25, 0.25])
    assert oort_law([3.0, 1.0], [0, 0], 0.25, 0.95, 1) == pytest.approx([0.5, 0.5])  # nobody has trained
    assert oort_law([3.0, None], [4, 0], 0.25, 0.95, 1) == [1.0, None]  # no newcomer answers


def test_oort_discounts_slow_clients_by_the_seconds_that_are_given() -> None:
    scheme = scheme_of("oort", seconds=[1.0, 4.0], deadline=2.0, explore=0.0, explore_least=0.0, cut_off=0.01)
    memory = scheme.first(0, 2)
    for selected in ([0], [1]):
        memory = json.loads(json.dumps(scheme.after(memory, selected, 0, 2)))
    drawn = scheme.draw(memory, [0, 1], [5.0, 5.0], HALF[:2])
    scores = np.array([math.sqrt(0.1 * math.log(3) / 1), math.sqrt(0.1 * math.log(3) / 2) * (2 / 4) ** 2])
    assert drawn.probabilities == pytest.approx(scores / scores.sum())
    with pytest.raises(InputError, match="2 entries, and 3 clients"):
        scheme.first(0, 3)
    with pytest.raises(InputError, match=r"selection\.deadline needs selection\.seconds"):
        scheme_of("oort", deadline=2.0)


def test_facility_location_takes_the_best_next_client() -> None:
    points = np.random.default_rng(5).normal(size=(7, 3))
    distance = distances(points)
    brute = np.array([[np.linalg.norm(a - b) for b in points] for a in points])
    np.testing.assert_allclose(distance, brute, atol=1e-7)
    order = facility_order(distance)
    for taken in range(7):
        costs = {j: np.min(brute[:, [*order[:taken], j]], axis=1).sum() for j in range(7) if j not in order[:taken]}
        assert costs[order[taken]] == pytest.approx(min(costs.values()))
    # Two groups: the second one taken is in the other group.
    groups = np.array([[0.0], [0.1], [0.2], [9.0], [9.1]])
    assert facility_order(distances(groups))[:2] == [2, 3]
    scheme = scheme_of("divfl")
    values = scheme.indicators({}, [{"gradient": row} for row in groups])
    assert scheme.draw({}, range(5), values, HALF[:5]).order == facility_order(distances(groups))


def test_fedcor_takes_what_lowers_the_expected_variance_most() -> None:
    """alpha sum_i p_i Sigma_ik / sqrt(Sigma_kk) is the sd of the weighted total that knowing client k explains."""
    draw = np.random.default_rng(2)
    changes, rows = draw.normal(size=(30, 5)) @ draw.normal(size=(5, 5)), np.array([5.0, 1.0, 2.0, 7.0, 3.0])
    sigma = covariance(changes, 1.0, 0.0)
    np.testing.assert_allclose(sigma, changes.T @ changes / 30, atol=1e-12)
    share = rows / rows.sum()

    def explained(chosen: tuple[int, ...]) -> float:
        part = sigma[np.ix_(chosen, chosen)]
        cross = share @ sigma[:, chosen]
        return float(cross @ np.linalg.solve(part, cross))

    order = correlation_order(sigma, rows, np.ones(5), range(5))
    gains = {k: share @ sigma[:, k] / np.sqrt(sigma[k, k]) for k in range(5)}
    assert order[0] == max(gains, key=lambda k: gains[k])
    assert explained((order[0],)) == pytest.approx(max(gains.values()) ** 2)
    # The second one: the gain under the conditional covariance, written as a Schur complement.
    k = order[0]
    rest = sigma - np.outer(sigma[:, k], sigma[k]) / sigma[k, k]
    after = {j: share @ rest[:, j] / np.sqrt(rest[j, j]) for j in range(5) if j != k}
    assert order[1] == max(after, key=lambda j: after[j])
    assert explained((k, order[1])) == pytest.approx(explained((k,)) + after[order[1]] ** 2)
    weighted = covariance(np.array([[1.0], [2.0]]), 0.5, 0.1)
    assert weighted[0, 0] == pytest.approx(1.1 * (0.5 * 1 + 4) / 1.5)


def test_fedcor_remembers_losses_and_lowers_who_has_trained() -> None:
    scheme = scheme_of("fedcor", warm_up=2, window=3, ridge=0.0, discount=1.0)
    memory = scheme.first(0, 3)
    for losses in ([3.0, 3.0, 3.0], [2.0, 2.5, 2.9], [1.5, 2.2, 2.9], [1.0, 2.0, 2.8]):
        reports = {k: {"loss": loss, "rows": 10} for k, loss in enumerate(losses)}
        memory = json.loads(json.dumps(scheme.learn(memory, reports)))
        memory = scheme.after(memory, [0], 0, 3)
    assert memory["changes"][0] == pytest.approx([-1.0, -0.5, -0.1])
    assert len(memory["changes"]) == 3
    assert memory["alphas"] == pytest.approx([0.95**4, 1.0, 1.0])
    sigma = covariance(np.array(memory["changes"]), 1.0, 0.0)
    expected = correlation_order(sigma, np.full(3, 10.0), np.array(memory["alphas"]), [0, 1, 2])
    assert scheme.draw(memory, [0, 1, 2], [1.0, 2.0, 2.8], HALF[:3]).order == expected
    partial = scheme.learn(memory, {1: {"loss": 1.9, "rows": 10}})
    assert partial["changes"][-1] == pytest.approx([0.0, -0.1, 0.0])
    assert without(scheme, [0]).learn(scheme.first(0, 2), {1: {"loss": 5.0, "rows": 1}})["losses"] == [5.0, None]


@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_inclusion_probabilities_have_the_least_variance(places: int) -> None:
    """Against a search over the probabilities that add up to m: sum_k u_k^2 (1 / p_k - 1) is smallest."""
    norms = np.array([0.2, 5.0, 1.0, 0.7])
    found = inclusion(norms, places)
    assert found.sum() == pytest.approx(places)
    assert (found <= 1).all()

    def variance(p: np.ndarray) -> float:
        return float(np.sum(norms**2 * (1 / p - 1)))

    for i, j in itertools.permutations(range(4), 2):
        moved = found.copy()
        moved[i], moved[j] = found[i] + 1e-4, found[j] - 1e-4
        if moved.max() <= 1 and moved.min() > 0:
            assert variance(moved) >= variance(found)
    assert inclusion(np.zeros(4), 2) == pytest.approx([0.5] * 4)
    assert inclusion(np.array([0.0, 0.0, 3.0]), 2).tolist() == [0.0, 0.0, 1.0]


def test_optimal_takes_the_certain_ones_first() -> None:
    scheme = scheme_of("optimal", per_round=2)
    for u in np.random.default_rng(0).uniform(1e-7, 1, (50, 4)):
        order = scheme.draw({}, range(4), [0.2, 50.0, None, 0.7], u).order
        assert order[0] == 1
        assert order[-1] == 2
    one = scheme_of("optimal").draw({}, range(3), [1.0, 2.0, 5.0], HALF[:3])
    assert one.probabilities == pytest.approx([1 / 8, 2 / 8, 5 / 8])


@pytest.mark.parametrize("name", ["oort", "fedcor"])
def test_what_is_remembered_goes_through_a_checkpoint(name: str, miniature: Callable[..., Any]) -> None:
    settings = {"selection": {"warm_up": 1} if name == "fedcor" else {}}
    federation = miniature(model="blr", scheme=name, rounds=6, settings=settings)
    _, expected = federation.play()
    context, state, records = federation.context, first(federation.context), []
    for _ in range(6):
        state, record = run_round(context, state)
        state = RunState(state.round, state.server, state.sites, json.loads(json.dumps(state.memory)))
        records.append(record.to_dict())
    assert [{**r, "seconds": 0} for r in records] == [{**r, "seconds": 0} for r in expected]


def test_oort_refuses_models_without_losses_of_rows() -> None:
    raw = {"model": {"kind": "random_intercept_logistic"}, "selection": {"kind": "oort"}}
    with pytest.raises(InputError, match="'oort' needs the loss of every row"):
        resolve(raw, Facts("classification", 2))


@pytest.mark.parametrize("scheme", ["ksd", "innovation"])
def test_fedavg_answers_what_it_has_and_no_more(scheme: str) -> None:
    raw = {"algorithm": {"kind": "fedavg"}, "selection": {"kind": scheme}}
    with pytest.raises(InputError, match=scheme):
        resolve(raw, Facts("classification", 2))
    config, _ = resolve(
        {"algorithm": {"kind": "fedavg"}, "selection": {"kind": "folb", "per_round": 2}}, Facts("classification", 2)
    )
    assert config.selection.kind == "folb"
