"""Synthetic rows in place of the clients' rows: Gaussian, with the released second moments. They cost no privacy.

**Moments.** A released matrix is M + E with Gaussian noise of known size, s on the diagonal and s / sqrt(2) elsewhere.
Its eigenvalues are spread out by the noise. The estimator of M that keeps the eigenvectors and is best in the Frobenius
norm for many dimensions moves each eigenvalue l_i to

    l_i - 2 g^2 h(l_i),   g^2 = d s^2 / 2,   h(l) = (1 / d) sum_j (l - l_j) / ((l - l_j)^2 + e^2)

(Bun, Allez, Bouchaud and Potters 2016; h is the Hilbert transform of the spectrum, smoothed over e = g / sqrt(d)). If
the matrix is all noise, the estimator moves all eigenvalues to their mean. It leaves eigenvalues far above the noise
unchanged.

**Rows.** Points z with mean zero and unit covariance exactly, in antithetic pairs, become x = m + V^(1/2) z with the
moments m and V that M gives. Sums over these rows replace sums over clients' rows. They reproduce M exactly, and hence
the curvature at zero coefficients. At other coefficients they are a good approximation if the linear predictors are
nearly Gaussian.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedstein.privacy.mechanism import Family

ROWS = 1024
SMALLEST_WEIGHT = 1.0  # the smallest number of rows that a client is taken to have


class SyntheticRows(NamedTuple):
    """Rows with the intercept's column, and how many rows each of them stands for."""

    x: np.ndarray
    weight: float

    def mean(self, family: Family, beta: np.ndarray) -> np.ndarray:
        """sum_i mean(f_i) (x) x_i at coefficients beta, predictors x inputs in row-major order."""
        f = self.x @ beta.reshape(family.predictors, -1).T
        return self.weight * (family.mean(f).T @ self.x).ravel()

    def information(self, family: Family, beta: np.ndarray) -> np.ndarray:
        """sum_i information(f_i) (x) x_i x_i', the derivative of ``mean``."""
        f = self.x @ beta.reshape(family.predictors, -1).T
        found, (count, width) = family.information(f), (family.predictors, self.x.shape[1])
        blocks = np.zeros((count, width, count, width))
        for a in range(count):
            for b in range(a + 1):
                blocks[a, :, b, :] = self.x.T @ (found[:, a, b, None] * self.x)
                blocks[b, :, a, :] = blocks[a, :, b, :].T
        return self.weight * blocks.reshape(count * width, count * width)


def cleaned(matrix: np.ndarray, noise: float) -> np.ndarray:
    """The estimate of a symmetric positive semi-definite matrix from a noisy release.

    Args:
        matrix: The release.
        noise: s, the standard deviation of the noise on the diagonal; zero for a matrix without noise.

    Returns:
        A symmetric positive semi-definite matrix.
    """
    values, axes = np.linalg.eigh(0.5 * (matrix + matrix.T))
    if noise > 0:
        variance = 0.5 * len(values) * noise**2
        width = np.sqrt(variance / len(values))
        apart = values[:, None] - values[None, :]
        values = np.sort(values - 2 * variance * np.mean(apart / (apart**2 + width**2), axis=1))
    return (axes * np.maximum(values, 0.0)) @ axes.T


def synthetic_rows(moments: np.ndarray, noise: float, count: int = ROWS) -> SyntheticRows:
    """Make rows whose second moments are those of a release.

    Args:
        moments: Released sum of w x x', inputs x inputs, the intercept's column last.
        noise: The standard deviation of its noise on the diagonal.
        count: The number of rows. There are at least four times as many rows as features, even if this is smaller.

    Returns:
        The rows.
    """
    found = cleaned(moments, noise)
    total = max(float(found[-1, -1]), SMALLEST_WEIGHT)
    mean = found[:-1, -1] / total
    values, axes = np.linalg.eigh(found[:-1, :-1] / total - np.outer(mean, mean))
    standard = _standard(len(mean), max(count, 4 * len(mean)))
    x = mean + (standard * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    return SyntheticRows(np.concatenate([x, np.ones((len(x), 1))], axis=1), total / len(x))


@lru_cache(maxsize=8)
def _standard(width: int, count: int) -> np.ndarray:
    """Points with mean zero and unit covariance exactly."""
    half = np.random.default_rng(0).standard_normal((count // 2, width))
    both = np.concatenate([half, -half])
    if not width:
        return both
    root = np.linalg.cholesky(both.T @ both / len(both))
    return np.linalg.solve(root, both.T).T
