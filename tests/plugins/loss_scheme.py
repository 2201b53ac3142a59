"""A selection scheme with a setting of its own: clients are drawn by their local loss."""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from fedstein.inference import target
from fedstein.selection import ReportingSettings, Scheme, SchemeKind, rule_of


class LossSettings(ReportingSettings):
    kind: str = "loss"
    sharpness: float = Field(1.0, gt=0, description="Clients are weighted by exp(sharpness * loss).")


def loss(settings: LossSettings, kernel: Any) -> Scheme:
    def report(client: target.Target, prepared: Any) -> dict[str, Any]:
        return {"loss": client.loss}

    def indicators(broadcast: dict[str, Any], reports: Sequence[dict[str, Any]]) -> list[float]:
        # Whatever a client sends as its loss, math.exp must not overflow.
        return [math.exp(min(settings.sharpness * float(report["loss"]), 700.0)) for report in reports]

    return rule_of(settings).scheme("loss", report, indicators)


LOSS = SchemeKind("loss", "drawn by local loss; a scalar from each candidate", LossSettings, loss)
