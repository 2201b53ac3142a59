"""The keys of ``[privacy]``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedstein.settings import Settings


class PrivacySettings(Settings):
    """The keys of ``[privacy]``."""

    sums: Literal["plain", "secure"] = Field(
        "plain",
        description="How the server gets sums over clients (scaling, moments of the inputs, evaluation) on Flower: "
        "each client's own, or masked so that it sees nothing but the sum over at least three clients.",
    )
