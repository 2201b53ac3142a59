"""HIP (Algorithm 2): a client reports its likelihood score at the particles, N x d; P_k = <phi_k, phi'> / sum_m ....

phi' belongs to the mean score of the reports that arrived (Lemma 3). A HIP can be negative; it then counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedstein import stein
from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.models.base import join
from fedstein.selection.base import SCORE, ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.stein.kernel import Kernel


class HipSettings(ReportingSettings):
    """Settings of selection by Hilbert inner product."""

    kind: str = "hip"


def hip(settings: HipSettings, kernel: Kernel) -> Scheme:
    """Build the scheme.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the inner product.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {SCORE: join(target.likelihood_score)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        found = stein.mean_hips(broadcast["particles"], [report[SCORE] for report in reports], kernel=kernel)
        return [float(value) for value in found]

    rule = rule_of(settings)
    return Scheme("hip", rule.draw, report, indicators, uses=(LIKELIHOOD,), first=rule.first, after=rule.after)


HIP = SchemeKind("hip", "Hilbert inner product; a score array from each candidate", HipSettings, hip, sends_scores=True)
