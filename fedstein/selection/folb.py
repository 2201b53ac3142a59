"""FOLB (Nguyen et al. 2020): P_k in proportion to |<grad F_k, grad F>|, F the mean of the clients' mean losses.

A client reports the gradient of its mean loss at every particle, N x d. The server averages the reports that arrived
to grad F and takes inner products over all coordinates of all particles:

    P_k = |<grad F_k, grad F>| / sum_m |<grad F_m, grad F>|.

The authors also weight the updates by these inner products; here the rule only selects clients.

Reference: Nguyen, Sehwag, Hosseinalipour, Brinton, Chiang and Poor, "Fast-Convergent Federated Learning", IEEE
Journal on Selected Areas in Communications 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.stein.kernel import Kernel


class FolbSettings(ReportingSettings):
    """Settings of FOLB."""

    kind: str = "folb"


def folb(settings: FolbSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares gradients, not particles, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"gradient": target.mean_gradient}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        gradients = [np.asarray(report["gradient"], np.float64) for report in reports]
        mean = sum(gradients) / len(gradients)
        return [float(abs(np.sum(gradient * mean))) for gradient in gradients]

    return rule_of(settings).scheme("folb", report, indicators, uses=(LIKELIHOOD,))


FOLB = SchemeKind(
    "folb",
    "inner product of the client's gradient with the mean one; a gradient from each candidate",
    FolbSettings,
    folb,
)
