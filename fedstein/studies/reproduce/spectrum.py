"""Periodicity of a curve: how much of its variance oscillates with the period of a pass over all clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PASSES = 2  # whole passes that are needed at least
ROUNDING = 1e-20  # power below which a curve is constant


def share_at_period(values: Sequence[float], period: int) -> float | None:
    """The share of a curve's variance at one period.

    The curve is cut to its last whole passes, without the first pass if three are left, and its linear trend is taken
    out. With y_0, ..., y_(T-1) and T = m K, the share is P_m / sum_j P_j with

        P_j = |sum_t y_t exp(-2 pi i j t / T)|^2,   j = 1, ..., T / 2  (each but j = T / 2 counted twice);

    the frequency m / T is the period K.

    Args:
        values: The curve, one value for each round.
        period: K, the number of clients.

    Returns:
        The share, from 0 to 1; None if the curve has fewer than two whole passes, or none of it varies.
    """
    passes = len(values) // period
    if passes < PASSES or period < 2:
        return None
    kept = passes - 1 if passes > PASSES else passes
    power = periodogram(values[len(values) - kept * period :])
    whole = float(power.sum())
    return float(power[kept - 1]) / whole if whole > ROUNDING else None


def periodogram(values: Sequence[float]) -> np.ndarray:
    """The power of a curve without its linear trend at the frequencies 1 / T, 2 / T, ..., 1 / 2."""
    y = np.asarray(values, np.float64)
    time = np.arange(len(y))
    y = y - np.polyval(np.polyfit(time, y, 1), time)
    power = np.abs(np.fft.rfft(y)) ** 2
    weights = np.full(len(power), 2.0)
    weights[0] = 0.0
    if len(y) % 2 == 0:
        weights[-1] = 1.0
    return (weights * power)[1:]
