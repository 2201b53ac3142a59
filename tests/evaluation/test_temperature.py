"""The calibration temperature: from sums that add up, against a direct search, and applied by ``predict``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedstein
from fedstein.errors import InputError
from fedstein.evaluation.metrics import add, sum_shapes
from fedstein.evaluation.metrics.temperature import least, nll_on_grid, temperature, tempered
from fedstein.evaluation.prediction import Prediction
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts


def made(true: float, rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities p, and labels from softmax(log p / true)."""
    draw = np.random.default_rng(0)
    log_probs = tempered(draw.normal(0, 1.5, size=(rows, 4)), 1.0)
    chances = np.exp(tempered(log_probs, true))
    return log_probs, (draw.random((rows, 1)) > chances.cumsum(axis=1)).sum(axis=1)


@pytest.mark.parametrize("true", [0.6, 1.0, 2.2])
def test_the_temperature_is_that_of_a_direct_search(true: float) -> None:
    log_probs, y = made(true)

    def nll(log_t: float) -> float:
        return float(-tempered(log_probs, np.exp(log_t))[np.arange(len(y)), y].mean())

    halves = [
        nll_on_grid(Prediction("classification", log_probs[part]), y[part]) for part in (slice(1500), slice(1500, None))
    ]
    found = least(add({k: np.asarray(v) for k, v in halves[0].items()}, halves[1]))
    assert found == pytest.approx(np.exp(minimize_scalar(nll, bounds=(-2, 2), method="bounded").x), rel=5e-3)
    assert found == pytest.approx(true, rel=0.1)


def test_tempering_keeps_the_order_and_one_changes_nothing() -> None:
    log_probs, _ = made(1.0, 50)
    np.testing.assert_allclose(tempered(log_probs, 1.0), log_probs, atol=1e-12)
    np.testing.assert_array_equal(tempered(log_probs, 0.5).argmax(axis=1), log_probs.argmax(axis=1))
    np.testing.assert_allclose(np.exp(tempered(log_probs, 3.0)).sum(axis=1), 1)
    assert least({"nll_at": np.full(33, np.inf)}) is None
    assert temperature.implausible({"nll_at": np.full(33, -1.0)})
    assert sum_shapes("classification", (temperature,))["nll_at"][0] == (33,)


def test_clients_find_it_and_predict_applies_it() -> None:
    draw, clients = np.random.default_rng(1), []
    for shift in (-0.5, 0.5):
        x = draw.normal(shift, 1, size=(60, 2)).astype(np.float32)
        clients.append((x, (x.sum(axis=1) + draw.normal(size=60) > 0).astype(int)))
    settings = {"rounds": 4, "algorithm__particles": 4, "evaluate__where": "clients", "sites__settle": False}
    plain = fedstein.fit("blr", clients, **settings, sites__expand="mean")
    fitted = fedstein.fit("blr", clients, **settings, evaluate__temperature="fit")
    np.testing.assert_array_equal(fitted.particles, plain.particles)  # it changes predictions, not training
    assert plain.temperature == 1.0
    assert fitted.temperature == fitted.rounds[-1]["temperature"] != 1.0
    x = clients[0][0]
    expected = np.exp(tempered(np.log(plain.predict(x)), fitted.temperature))
    np.testing.assert_allclose(fitted.predict(x), expected, rtol=1e-9)


def test_it_is_never_fitted_on_test_rows_or_for_a_regression() -> None:
    evaluate = {"temperature": "fit"}
    with pytest.raises(InputError, match="never on test rows"):
        resolve({"evaluate": evaluate}, Facts("classification", 2))
    raw = {"data": {"name": "diabetes"}, "evaluate": {**evaluate, "where": "clients"}}
    with pytest.raises(InputError, match="for classifications"):
        resolve({**raw, "model": {"kind": "linear"}}, Facts("regression", 0))
