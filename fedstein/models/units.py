"""Parameters of standardised rows in the units of the rows themselves: an exact affine map of theta.

A model sees (x - m) / s and, for a regression with real targets, (y - n) / t. A linear predictor of scaled rows is also
one of the rows as they were:

    w . (x - m) / s + b = (w / s) . x + (b - w . m / s),

so the weights are w / s and the intercept is b - w . m / s. If the target was scaled, both are multiplied by t, and n
is added to the intercept; a parameter that is the logarithm of t^p times something grows by p log t.
"""

from __future__ import annotations

import numpy as np

from fedstein.models.base import Model


def in_own_units(
    model: Model, theta: np.ndarray, mean: np.ndarray, scale: np.ndarray, target_mean: float, target_scale: float
) -> np.ndarray | None:
    """Give parameters in the units of the rows as they were passed.

    Args:
        model: The model.
        theta: Points, ... x d, of the model of scaled rows.
        mean: What was subtracted from each feature.
        scale: What each feature was divided by.
        target_mean: What was subtracted from the target, 0 if nothing was.
        target_scale: What the target was divided by, 1 if it was not scaled.

    Returns:
        Points of the same shape in float64. log xi, the precision of the weights' prior, stays that of the scaled
        weights. None for models whose parameters have no such map (``Model.units``).
    """
    form = model.units
    if form is None or len(mean) != model.features:
        return None
    points = np.array(theta, np.float64)
    width = model.widths[0]
    block = points[..., :width].reshape(*points.shape[:-1], form.predictors, model.features + 1)
    weights = block[..., :-1] / scale
    intercepts = block[..., -1] - weights @ np.asarray(mean, np.float64)
    block = np.concatenate([target_scale * weights, (target_scale * intercepts + target_mean)[..., None]], axis=-1)
    points[..., :width] = block.reshape(*points.shape[:-1], width)
    powers = form.powers or (0,) * (model.dim - width)
    points[..., width:] += np.log(target_scale) * np.asarray(powers, np.float64)
    return points
