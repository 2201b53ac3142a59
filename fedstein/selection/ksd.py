"""KSD (Algorithm 1): a client reports S(q, p~_k), one scalar; drawn with P_k = S_k / sum_m S_m (eqn:definition1).

    S(q, p~_k) = (1/N^2) sum_ij u(theta_i, theta_j),

the kernelized Stein discrepancy of the particles from the client's tilted target (eqn:KSD).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import TILTED, SharedTarget, Target
from fedstein.selection.base import ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.stein.discrepancy import Frame, frame_of, ksd_in
from fedstein.stein.kernel import Kernel


class KsdSettings(ReportingSettings):
    """Settings of selection by kernelized Stein discrepancy."""

    kind: str = "ksd"


def ksd(settings: KsdSettings, kernel: Kernel) -> Scheme:
    """Build the scheme.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the discrepancy.

    Returns:
        The scheme.
    """

    def prepare(shared: SharedTarget) -> Frame:
        return frame_of(shared.centred[0], kernel=kernel)

    def report(target: Target, frame: Any) -> Arrays:
        return {"ksd": ksd_in(frame, target.tilted_score)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["ksd"]) for report in reports]

    return rule_of(settings).scheme("ksd", report, indicators, prepare=prepare, uses=(TILTED,))


KSD = SchemeKind(
    "ksd", "kernelized Stein discrepancy; a scalar from each candidate", KsdSettings, ksd, needs_tilted=True
)
