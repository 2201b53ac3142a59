"""Gradient norm (Ren et al. 2020): a client reports the norm of its gradient, one scalar; P_k in proportion to it.

    P_k = n_k ||g_k|| / sum_m n_m ||g_m||,      n_k g_k = gradient of the client's whole loss L_k,

with the root mean square over particles in place of the norm at a single weight vector. The authors' term for the
state of the radio channel is left out. They also weigh the update by n_k / (N P_k), which keeps the expected step
unbiased: ``selection.unbiased`` does that for methods that average updates, see ``fedstein.selection.unbiased``.

Reference: Ren, He, Wen, Yu, Huang and Guo, "Scheduling for Cellular Federated Edge Learning with Importance and
Channel Awareness", IEEE Transactions on Wireless Communications 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.selection.unbiased import UnbiasedSettings, race_weights
from fedstein.stein.kernel import Kernel


class GradientNormSettings(UnbiasedSettings):
    """Settings of selection by the norm of the gradient."""

    kind: str = "gradient_norm"


def gradient_norm(settings: GradientNormSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares no particles, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"norm": target.gradient_norm}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["norm"]) for report in reports]

    made = rule_of(settings).scheme("gradient_norm", report, indicators, uses=(LIKELIHOOD,))
    return made._replace(weights=race_weights if settings.unbiased else None)


GRADIENT_NORM = SchemeKind(
    "gradient_norm", "norm of the client's gradient; a scalar from each candidate", GradientNormSettings, gradient_norm
)
