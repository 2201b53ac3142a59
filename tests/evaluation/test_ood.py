"""The area under the ROC curve of foreign rows, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedstein.errors import InputError
from fedstein.evaluation.entropy import class_entropy
from fedstein.evaluation.ood import auroc, entropies


def test_the_area_is_that_of_scikit_learn_with_ties() -> None:
    draw = np.random.default_rng(0)
    inside, outside = draw.integers(0, 6, 50).astype(float), draw.integers(2, 9, 70).astype(float)
    expected = roc_auc_score(np.repeat([0, 1], [50, 70]), np.concatenate([inside, outside]))
    assert auroc(inside, outside) == pytest.approx(expected, abs=1e-12)
    assert auroc(np.zeros(3), np.ones(2)) == 1.0
    assert auroc(np.zeros(3), np.zeros(2)) == 0.5


def test_entropies_are_those_of_one_draw_and_zero_probabilities_count_nothing() -> None:
    p = np.random.default_rng(1).dirichlet(np.ones(4), size=6)
    np.testing.assert_allclose(entropies(p), class_entropy(np.log(p)[None]).total, rtol=1e-12)
    np.testing.assert_array_equal(entropies(np.array([[1.0, 0.0]])), [0.0])


@pytest.mark.parametrize("wrong", [(np.zeros(0), np.ones(2)), (np.array([np.nan]), np.ones(2))])
def test_what_has_no_area_is_refused(wrong: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(InputError, match="expected"):
        auroc(*wrong)
