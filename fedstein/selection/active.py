"""Active federated learning (Goetz et al. 2019): clients are drawn by exp(alpha2 v_k), v_k = total loss / sqrt(n_k).

The alpha1 share of candidates with the lowest v_k is left to chance alone, and a share alpha3 of the places is drawn
uniformly. Both are one law, from which clients are drawn without replacement:

    P_k = (1 - alpha3) softmax(alpha2 v)_k [k is not among the lowest] + alpha3 / candidates.

The authors fill alpha3 m of m places uniformly; here each place is uniform with probability alpha3, which is the same
on average and works for one client a round. They keep the v_k of the last training; here candidates report them
afresh.

Reference: Goetz, Malik, Bui, Moon, Liu and Kumar, "Active Federated Learning", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import Draw, Memory, ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import Indicators, proportional
from fedstein.settings import NonNegativeFloat
from fedstein.stein.kernel import Kernel


class ActiveSettings(ReportingSettings):
    """Settings of active federated learning."""

    kind: str = "active"
    draw: Literal["proportional"] = Field("proportional", description="This scheme has no other rule.")
    alpha1: float = Field(
        0.75, ge=0, lt=1, description="The share of candidates with the lowest values that is left out."
    )
    alpha2: NonNegativeFloat = Field(0.01, description="Clients are weighted by exp(alpha2 * value).")
    alpha3: float = Field(0.1, ge=0, le=1, description="The share of places that is drawn uniformly.")


def active(settings: ActiveSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares losses, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"value": target.loss * jnp.sqrt(jnp.asarray(target.rows, target.loss.dtype))}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["value"]) for report in reports]

    def draw(memory: Memory, candidates: Sequence[int], values: Indicators, uniforms: np.ndarray) -> Draw:
        law = active_law(values, settings.alpha1, settings.alpha2, settings.alpha3)
        return proportional(candidates, law, uniforms, settings.max_probability)

    return Scheme("active", draw, report, indicators, uses=(LIKELIHOOD,))


def active_law(values: Indicators, alpha1: float, alpha2: float, alpha3: float) -> list[float | None]:
    """The law of the first draw.

    Args:
        values: v_k of each candidate; None if it did not report.
        alpha1: The share of the lowest values that is left out.
        alpha2: The factor in the exponent.
        alpha3: The share of uniform draws.

    Returns:
        The probabilities; None if there was no report.
    """
    heard = [i for i, value in enumerate(values) if value is not None and np.isfinite(value)]
    law: list[float | None] = [None] * len(values)
    if not heard:
        return law
    found = np.array([values[i] for i in heard], np.float64)
    kept = np.argsort(found, kind="stable")[int(alpha1 * len(found)) :]
    weights = np.zeros(len(found))
    weights[kept] = np.exp(alpha2 * (found[kept] - found.max()))
    mixed = (1 - alpha3) * weights / weights.sum() + alpha3 / len(found)
    for i, p in zip(heard, mixed, strict=True):
        law[i] = float(p)
    return law


ACTIVE = SchemeKind(
    "active", "drawn by exp(total loss / sqrt(n)); a scalar from each candidate", ActiveSettings, active
)
