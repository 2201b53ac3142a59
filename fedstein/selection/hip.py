"""HIP (Algorithm 2): a client reports its likelihood score at the particles, N x d; P_k = <phi_k, phi'> / sum_m ....

phi' belongs to the mean score of the reports that arrived (Lemma 3). A HIP can be negative; it then counts as zero.
With ``selection.projection = m`` a report is a random projection of the score, N x m, from which the server estimates
the HIPs without bias. That is enough to choose by, and not to renew sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from pydantic import Field

from fedstein import stein
from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, SharedTarget, Target
from fedstein.models.base import join
from fedstein.selection.base import SCORE, ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.settings import Count
from fedstein.stein.kernel import Kernel

PROJECTED = "projected_score"


class HipSettings(ReportingSettings):
    """Settings of selection by Hilbert inner product."""

    kind: str = "hip"
    projection: Count = Field(
        0,
        description="Length of a random projection of each particle's score, which a report has in place of the score; "
        "HIPs are then right on average. 0 sends the whole score; only whole scores can renew sites.",
    )


def hip(settings: HipSettings, kernel: Kernel) -> Scheme:
    """Build the scheme.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the inner product.

    Returns:
        The scheme.
    """

    size = settings.projection

    def prepare(shared: SharedTarget) -> Any:
        return stein.projection_key(join(shared.blocks)) if size else ()

    def report(target: Target, prepared: Any) -> Arrays:
        score = join(target.likelihood_score)
        return {PROJECTED: stein.project(prepared, score, size)} if 0 < size < score.shape[1] else {SCORE: score}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        if PROJECTED in reports[0]:
            particles = jnp.asarray(broadcast["particles"])
            sent = [jnp.asarray(report[PROJECTED]) for report in reports]
            return [float(value) for value in stein.projected_hips(particles, sent, kernel=kernel)]
        found = stein.mean_hips(broadcast["particles"], [report[SCORE] for report in reports], kernel=kernel)
        return [float(value) for value in found]

    rule = rule_of(settings)
    return Scheme("hip", rule.draw, report, indicators, prepare, (LIKELIHOOD,), rule.first, rule.after)


HIP = SchemeKind("hip", "Hilbert inner product; a score array from each candidate", HipSettings, hip, sends_scores=True)
