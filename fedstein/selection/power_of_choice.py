"""Power-of-choice (Cho et al. 2020): of ``selection.pool`` clients drawn at random, those with the largest local
losses.

A candidate reports its mean loss at the particles, one scalar, and the largest losses train. The authors draw the
pool in proportion to the clients' rows; here, as with every scheme, it is drawn uniformly. With ``pool = 0``
every client is asked, and the rule is greedy.

Reference: Cho, Wang and Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
Selection Strategies", 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.settings import Count
from fedstein.stein.kernel import Kernel


class PowerOfChoiceSettings(ReportingSettings):
    """Settings of power-of-choice."""

    kind: str = "power_of_choice"
    draw: Literal["greedy"] = Field("greedy", description="The largest losses train; this scheme has no other rule.")
    pool: Count = Field(0, description="d, the random candidates that report their losses; 0 asks every client.")


def power_of_choice(settings: PowerOfChoiceSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares losses, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"loss": target.loss}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return above_zero([float(report["loss"]) for report in reports])

    return rule_of(settings).scheme("power_of_choice", report, indicators, uses=(LIKELIHOOD,))


def above_zero(losses: Sequence[float]) -> list[float]:
    """The losses, raised by a constant if any is negative, so that their order survives the draw.

    A loss is minus a log-density, which regression can make negative, and drawing rules count what is negative as zero.

    Args:
        losses: The losses of a round.

    Returns:
        The same losses if none is negative; else differences from the least one, plus one.
    """
    least = min(losses, default=0.0)
    return list(losses) if least >= 0 else [1.0 + loss - least for loss in losses]


POWER_OF_CHOICE = SchemeKind(
    "power_of_choice",
    "the largest local losses of a random pool; a scalar from each candidate",
    PowerOfChoiceSettings,
    power_of_choice,
)
