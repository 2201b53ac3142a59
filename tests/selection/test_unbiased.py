"""Step weights: their expectation over the draw, and what they do to the step of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from building import scheme_of

from fedstein.errors import InputError
from fedstein.federation.protocol import first, run_round
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.selection.draws import proportional
from fedstein.selection.unbiased import race_weights, step_factors

CLIENTS = [3, 5, 8, 9]
VALUES = [1.0, 4.0, 2.0, 0.5]
STEPS = np.array([2.0, -1.0, 0.7, 0.9])


def test_one_client_is_weighted_by_one_over_its_probability() -> None:
    drawn = proportional(CLIENTS, VALUES, np.array([0.5, 0.4, 0.3, 0.2]))
    law = np.array(VALUES) / 7.5
    found = [race_weights(CLIENTS, drawn, np.full(4, 0.5), [client])[client] for client in CLIENTS]
    np.testing.assert_allclose(found, 1 / law)
    assert np.sum(law * found * STEPS) == pytest.approx(STEPS.sum())


@pytest.mark.parametrize("kind", ["gradient_norm", "optimal"])
@pytest.mark.parametrize("places", [2, 3])
def test_the_expected_step_of_several_clients_is_that_of_all(kind: str, places: int) -> None:
    scheme = scheme_of(kind, per_round=places, unbiased=True)
    assert scheme.weights is not None
    draw, found = np.random.default_rng(places), []
    step = dict(zip(CLIENTS, STEPS, strict=True))
    for _ in range(3000):
        uniforms = draw.uniform(size=4)
        drawn = scheme.draw({}, CLIENTS, VALUES, uniforms)
        weights = scheme.weights(CLIENTS, drawn, uniforms, drawn.order[:places])
        found.append(sum(weight * step[client] for client, weight in weights.items()))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - STEPS.sum()) < 3.5 * error
    assert error < 0.2


def test_clients_that_are_certain_to_train_and_all_clients_weigh_one() -> None:
    scheme = scheme_of("optimal", per_round=2, unbiased=True)
    assert scheme.weights is not None
    uniforms = np.array([0.9, 0.8, 0.7, 0.6])
    drawn = scheme.draw({}, CLIENTS, [1.0, 100.0, 2.0, 0.5], uniforms)
    assert drawn.certain == {5}
    weights = scheme.weights(CLIENTS, drawn, uniforms, drawn.order[:2])
    assert weights[5] == 1.0
    other = drawn.order[1]
    assert weights[other] == pytest.approx(3.5 / dict(zip(CLIENTS, [1.0, 100.0, 2.0, 0.5], strict=True))[other])
    assert set(scheme.weights(CLIENTS, drawn, uniforms, CLIENTS).values()) == {1.0}
    assert step_factors({3: 2.0, 5: 1.0}, {3: 10, 5: 30, 8: 60}, 100, 0.5) == {3: 1.6, 5: 0.8}
    assert scheme_of("optimal", per_round=2).weights is None


@pytest.mark.parametrize("method", ["fedavg", "fedpa"])
def test_the_step_of_a_round_is_multiplied(method: str, miniature: Callable[..., Any]) -> None:
    moves, sizes = {}, (12, 11, 7, 16)
    for unbiased in (False, True):
        chosen = {"algorithm": {"particles": 2}, "selection": {"per_round": 1, "unbiased": unbiased}}
        made = miniature(model="blr", algorithm=method, scheme="gradient_norm", sizes=sizes, settings=chosen)
        before = first(made.context)
        after, record = run_round(made.context, before)
        moves[unbiased] = np.asarray(after.server["particles"], float) - np.asarray(before.server["particles"], float)
        client = record.selected[0]
        assert record.probabilities is not None
        factor = sizes[client] / (sum(sizes) * record.probabilities[client])
    assert abs(factor - 1) > 0.01
    np.testing.assert_allclose(moves[True], factor * moves[False], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"algorithm": {"kind": "dsvgd"}}, "which algorithm.kind = 'dsvgd' does not do; leave it out, or use fedavg"),
        ({"algorithm": {"kind": "fedavg"}, "selection": {"draw": "greedy"}}, "needs selection.draw = 'proportional'"),
    ],
)
def test_what_cannot_be_weighted_is_refused(settings: dict[str, Any], expected: str) -> None:
    selection = {"kind": "gradient_norm", "per_round": 2, "unbiased": True, **settings.get("selection", {})}
    with pytest.raises(InputError, match=expected):
        resolve({**settings, "selection": selection}, Facts("classification", 2))
