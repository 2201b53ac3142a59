"""Sums over rows: those of several clients add up to the metrics of all their rows together."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.evaluation.metrics import (
    NAMES,
    add_sums,
    classification,
    classification_sums,
    metrics_of,
    no_sums,
    regression,
    regression_sums,
    reliability,
    reliability_of,
    sum_shapes,
)

SIZES = (1, 2, 17, 230, 400)


def parts_of(*arrays):
    edges = np.cumsum(SIZES)[:-1]
    return list(zip(*(np.split(array, edges) for array in arrays), strict=True))


@pytest.mark.parametrize("classes", [2, 7])
def test_the_union_of_clients_is_all_rows_together(classes):
    rng = np.random.default_rng(classes)
    log_probs = np.log(rng.dirichlet(np.full(classes, 0.4), sum(SIZES)))
    labels = rng.integers(classes, size=sum(SIZES))
    total = add_sums("classification", [classification_sums(p, y) for p, y in parts_of(log_probs, labels)])
    whole = classification(log_probs, labels)
    assert metrics_of(total) == pytest.approx(whole, abs=1e-12)
    assert metrics_of(total)["accuracy"] == whole["accuracy"]
    assert [row["count"] for row in reliability_of(total)] == [row["count"] for row in reliability(log_probs, labels)]


def test_the_union_of_clients_is_all_rows_together_in_regression():
    rng = np.random.default_rng(0)
    log_density, mean, y = rng.normal(size=(3, sum(SIZES)))
    total = add_sums("regression", [regression_sums(*part) for part in parts_of(log_density, mean, y)])
    assert metrics_of(total, 7.5) == pytest.approx(regression(log_density, mean, y, 7.5), abs=1e-12)
    assert reliability_of(total) is None


def test_sums_have_the_shapes_that_a_server_expects():
    found = {
        "classification": classification_sums(np.log([[0.7, 0.3]]), [0]),
        "regression": regression_sums([0.0], [0.0], [1.0]),
    }
    for task, sums in found.items():
        for arrays in (sums, no_sums(task), add_sums(task, [sums, sums])):
            assert {name: (array.shape, str(array.dtype)) for name, array in arrays.items()} == sum_shapes(task)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_no_rows_have_no_metrics(task):
    assert metrics_of(no_sums(task)) == dict.fromkeys(NAMES)
    assert metrics_of(add_sums(task, [])) == dict.fromkeys(NAMES)
    for row in reliability_of(no_sums(task)) or []:
        assert (row["count"], row["confidence"], row["accuracy"]) == (0, None, None)


def test_a_client_without_rows_changes_nothing():
    sums = classification_sums(np.log([[0.7, 0.3], [0.2, 0.8]]), [0, 0])
    assert metrics_of(add_sums("classification", [no_sums("classification"), sums])) == metrics_of(sums)


def test_an_impossible_label_at_one_client_stays_visible_in_the_total():
    certain = classification_sums([[0.0, -np.inf]], [1])
    sums = add_sums("classification", [certain, classification_sums(np.log([[0.7, 0.3]]), [0])])
    assert metrics_of(sums)["nll"] == np.inf
