"""Detection of out-of-distribution rows by their predictive entropy: the area under the ROC curve.

A row with a larger predictive entropy counts as more foreign. The area is the probability that
a foreign row has a larger entropy than a test row, ties counted half: 1 is perfect, 0.5 is chance. It equals the
statistic of Mann and Whitney divided by the number of pairs.
"""

from __future__ import annotations

import numpy as np

from fedstein.errors import InputError


def entropies(probabilities: np.ndarray) -> np.ndarray:
    """The entropy of each row's predictive distribution, in nats.

    Args:
        probabilities: Rows x classes.

    Returns:
        One number for each row.
    """
    p = np.asarray(probabilities, np.float64)
    return -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """The area under the ROC curve of a score that should be larger for rows from outside.

    Args:
        inside: The scores of the test rows.
        outside: The scores of rows of another kind.

    Returns:
        The area, from 0 to 1.

    Raises:
        InputError: There are no rows of one kind, or a score is not a number.
    """
    if not len(inside) or not len(outside):
        raise InputError(f"expected rows of both kinds, got {len(inside)} test rows and {len(outside)} others")
    both = np.concatenate([inside, outside]).astype(np.float64)
    if not np.isfinite(both).all():
        raise InputError("expected finite scores, got some that are not; look at the predictions")
    _, places, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # ties share the mean of their ranks
    above = ranks[len(inside) :].sum() - len(outside) * (len(outside) + 1) / 2
    return float(above / (len(inside) * len(outside)))
