"""Scores against scikit-learn, SciPy and a loop that shares no code with the package."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from fedstein.evaluation.metrics import BUILT_IN, METRICS, NAMES, classification, regression, reliability


def random_predictions(seed: int, rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.5), rows)
    return probs, rng.integers(classes, size=rows)


def naive_calibration(probs: list[list[float]], labels: list[int], bins: int = 15) -> tuple[float, float]:
    """ECE and MCE by the textbook: one loop over bins, one over rows."""
    ece, worst = 0.0, 0.0
    for b in range(bins):
        members = []
        for row, label in zip(probs, labels, strict=True):
            top = max(row)
            if b / bins < top <= (b + 1) / bins or (b == 0 and top == 0.0) or (b == bins - 1 and top > 1.0):
                members.append((top, row.index(top) == label))
        if members:
            gap = abs(sum(c for c, _ in members) / len(members) - sum(r for _, r in members) / len(members))
            ece += gap * len(members) / len(labels)
            worst = max(worst, gap)
    return ece, worst


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_agrees_with_scikit_learn(classes: int) -> None:
    probs, labels = random_predictions(classes, 500, classes)
    got = classification(np.log(probs), labels)
    assert got["accuracy"] == accuracy_score(labels, probs.argmax(1))
    assert got["nll"] == pytest.approx(log_loss(labels, probs, labels=range(classes)), rel=1e-12)
    if classes == 2:  # scikit-learn's binary form is half the sum over both classes
        assert got["brier"] == pytest.approx(2 * brier_score_loss(labels, probs[:, 1]), rel=1e-12)
    by_hand = sum(
        sum((p - (c == label)) ** 2 for c, p in enumerate(row)) for row, label in zip(probs, labels, strict=True)
    )
    assert got["brier"] == pytest.approx(by_hand / len(labels), rel=1e-12)


@given(
    st.integers(2, 6).flatmap(
        lambda k: hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(k)), elements=st.floats(1e-3, 1.0))
    ),
    st.randoms(use_true_random=False),
)
def test_calibration_agrees_with_a_naive_loop(weights: np.ndarray, random) -> None:
    log_probs = np.log(weights / weights.sum(axis=1, keepdims=True))
    labels = [random.randrange(weights.shape[1]) for _ in weights]
    # The loop sees exp(log p), so both look at the same floats.
    ece, mce = naive_calibration(np.exp(log_probs).tolist(), labels)
    got = classification(log_probs, np.array(labels))
    assert got["ece"] == pytest.approx(ece, abs=1e-12)
    assert got["mce"] == pytest.approx(mce, abs=1e-12)


def test_the_rows_of_the_diagram_add_up_to_ece_and_mce() -> None:
    probs, labels = random_predictions(1, 400, 4)
    rows = reliability(np.log(probs), labels)
    got = classification(np.log(probs), labels)
    gaps = [(r["count"], abs(r["confidence"] - r["accuracy"])) for r in rows if r["count"]]
    assert len(rows) == 15
    assert sum(r["count"] for r in rows) == 400
    assert sum(n * g for n, g in gaps) / 400 == pytest.approx(got["ece"])
    assert max(g for _, g in gaps) == pytest.approx(got["mce"])
    assert all(r["confidence"] is None and r["accuracy"] is None for r in rows if not r["count"])


def log_of(p: float) -> float:
    """The float whose exp is exactly p, so that p lies on the edge and not beside it."""
    guess = math.log(p)
    for candidate in (guess, math.nextafter(guess, 1.0), math.nextafter(guess, -99.0)):
        if float(np.exp(candidate)) == p:
            return candidate
    raise AssertionError(p)


@pytest.mark.parametrize(("confidence", "bin_index"), [(0.5, 4), (0.6, 5), (0.75, 7), (0.9, 8), (1.0, 9), (0.25, 2)])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(confidence: float, bin_index: int) -> None:
    rest = np.full((1, 9), -np.inf)
    rows = reliability(np.hstack([[[log_of(confidence)]], rest]), [0], bins=10)
    assert [r["count"] for r in rows].index(1) == bin_index
    assert rows[bin_index]["confidence"] == confidence


def test_confidence_zero_is_in_the_first_bin_and_above_one_in_the_last() -> None:
    rows = reliability([[-np.inf, -np.inf], [1e-12, -np.inf]], [0, 0])
    assert rows[0]["count"] == 1
    assert rows[14]["count"] == 1


def test_perfectly_calibrated() -> None:
    labels = np.array([0] * 8 + [1] * 2)
    got = classification(np.log(np.tile([0.8, 0.2], (10, 1))), labels)
    assert got["ece"] == pytest.approx(0.0, abs=1e-12)
    assert got["mce"] == pytest.approx(0.0, abs=1e-12)
    assert got["accuracy"] == 0.8


def test_certain_and_right() -> None:
    got = classification([[0.0, -np.inf], [-np.inf, 0.0]], [0, 1])
    assert got == {"accuracy": 1.0, "nll": 0.0, "brier": 0.0, "ece": 0.0, "mce": 0.0, "rmse": None}


def test_certain_and_wrong() -> None:
    got = classification([[0.0, -np.inf], [-np.inf, 0.0]], [1, 0])
    assert got == {"accuracy": 0.0, "nll": np.inf, "brier": 2.0, "ece": 1.0, "mce": 1.0, "rmse": None}


def test_a_nan_is_wrong_and_stays_visible() -> None:
    got = classification([[np.nan, np.nan], [0.0, -np.inf]], [0, 0])
    assert got["accuracy"] == 0.5
    assert math.isnan(got["nll"] or 0.0)
    assert math.isnan(got["ece"] or 0.0)


def test_float32_input_is_scored_in_float64() -> None:
    probs, labels = random_predictions(7, 300, 3)
    single = np.log(probs).astype(np.float32)
    assert classification(single, labels) == classification(single.astype(np.float64), labels)


def test_regression_agrees_with_the_density_in_original_units() -> None:
    rng = np.random.default_rng(3)
    scale, shift = 16.7, 35.8
    y, mean, sd = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.5, 2, 50)
    got = regression(stats.norm.logpdf(y, mean, sd), mean, y, scale)
    original, predicted = scale * y + shift, scale * mean + shift
    assert got["nll"] == pytest.approx(-stats.norm.logpdf(original, predicted, scale * sd).mean(), rel=1e-12)
    assert got["rmse"] == pytest.approx(np.sqrt(((original - predicted) ** 2).mean()), rel=1e-12)
    assert [m for m in NAMES if got[m] is None] == ["accuracy", "brier", "ece", "mce"]


def test_every_dictionary_has_the_metrics_in_order() -> None:
    assert NAMES == ("accuracy", "nll", "brier", "ece", "mce", "rmse")
    assert tuple(metric.name for metric in BUILT_IN) == NAMES
    assert [name for name in NAMES if METRICS[name].larger_is_better] == ["accuracy"]
    assert tuple(classification([[-0.7, -0.7]], [0])) == NAMES
    assert tuple(regression([0.0], [0.0], [0.0], 1.0)) == NAMES


@pytest.mark.parametrize(
    ("log_probs", "labels"),
    [
        (np.zeros((2, 3)), [0]),
        (np.zeros(3), [0, 1, 2]),
        (np.zeros((0, 3)), []),
        (np.zeros((1, 3)), [3]),
        (np.zeros((1, 3)), [-1]),
        (np.zeros((1, 3)), [0.0]),
    ],
)
def test_input_that_does_not_fit_is_refused(log_probs: np.ndarray, labels: list) -> None:
    with pytest.raises(ValueError, match="expected"):
        classification(log_probs, labels)


def test_regression_refuses_a_column_beside_a_vector() -> None:
    with pytest.raises(ValueError, match="one shape"):
        regression(np.zeros(3), np.zeros((3, 1)), np.zeros(3), 1.0)
