"""Innovation: a client reports how much its own likelihood disagrees with its own site at the particles, one scalar.

    I_k = (1/N^2) sum_ij k_ij D_i . D_j,      D = score of p_k - score of t_k,

the squared RKHS norm of what the client would teach beyond what q has of it already. t_k starts at 1, so a client that
was never selected reports its whole likelihood; one whose site is exact reports zero. Needs sites that have a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, SITE, SharedTarget, Target
from fedstein.selection.base import ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.stein.discrepancy import kernel_of, norm_in
from fedstein.stein.kernel import Kernel


class InnovationSettings(ReportingSettings):
    """Settings of selection by innovation."""

    kind: str = "innovation"
    draw: Literal["proportional", "greedy", "pass", "aged"] = Field(
        "pass", description="How clients are drawn from their indicators."
    )


def innovation(settings: InnovationSettings, kernel: Kernel) -> Scheme:
    """Build the scheme.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the norm.

    Returns:
        The scheme.
    """

    def prepare(shared: SharedTarget) -> Array:
        return kernel_of(shared.blocks, kernel=kernel)

    def report(target: Target, matrix: Any) -> Arrays:
        difference = jax.tree.map(jnp.subtract, target.likelihood_score, target.site_score)
        return {"innovation": norm_in(matrix, difference)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["innovation"]) for report in reports]

    return rule_of(settings).scheme("innovation", report, indicators, prepare=prepare, uses=(LIKELIHOOD, SITE))


INNOVATION = SchemeKind(
    "innovation",
    "how much a client's likelihood disagrees with its own site; a scalar from each candidate",
    InnovationSettings,
    innovation,
    needs_site_score=True,
)
