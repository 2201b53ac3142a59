"""The keys of ``[privacy]``: what is protected, the budget, and how the budget is spent.

No default depends on rows. The bound on a row's norm depends on the number of features alone.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from fedstein.settings import Count, Fraction, Positive, PositiveFloat, Settings

PUBLIC = ("rows", "scaling", "columns")
Public = Annotated[str, Field(pattern=f"^({'|'.join(PUBLIC)})$")]
LARGEST_CLIP = 4.0
COLLUDING = 1  # every client knows its own share of the noise


class PrivacySettings(Settings):
    """The keys of ``[privacy]``."""

    kind: Literal["none", "record", "client"] = Field(
        "none",
        description="What is protected: nothing, every single row of a client (record-level differential privacy: "
        "datasets are neighbours if one has one row more), or a client's rows all together (client-level: datasets are "
        "neighbours if one has all rows of a client and the other none).",
    )
    epsilon: PositiveFloat = Field(1.0, le=100.0, description="epsilon of each client's whole run.")
    delta: Annotated[float, Field(gt=0, lt=0.1)] = Field(1e-5, description="delta of each client's whole run.")
    sums: Literal["plain", "secure"] = Field(
        "plain",
        description="How the server gets sums over clients (categories, scaling, moments of the inputs, evaluation) on "
        "Flower: each client's own, or masked so that it sees nothing but the sum over at least three clients.",
    )
    colluding: Count | None = Field(
        None,
        description="With secure sums in a private run: how many clients of a sum may know the noise that they added "
        f"themselves and still learn no more than epsilon allows. The noise of every client grows with this number. "
        f"The default is {COLLUDING}.",
    )
    dropouts: Count | None = Field(
        None,
        description="With secure sums in a private run: how many clients may drop out of a sum that has begun. If "
        "more drop out, there is no sum. The noise of every client grows with this number. By default it is the "
        "largest number that the protocol allows, which is less than a third.",
    )
    clip: PositiveFloat | None = Field(
        None,
        description="C, the norm beyond which a row counts less: by (C / norm)^2, the intercept's 1 included. "
        f"min({LARGEST_CLIP:g}, sqrt(features + 1)) unless set. With networks: the norm to which longer gradients of "
        "single rows are shortened; a third of the median norm on synthetic rows unless set.",
    )
    client_rows: Positive | None = Field(
        None,
        description="A public number of rows, which bounds how much a client counts, however many rows it has "
        "(required with privacy.kind = 'client').",
    )
    visits: Annotated[int, Field(ge=1, le=1000)] = Field(
        4, description="How often each client releases a gradient; its budget is shared out over these visits."
    )
    split: Fraction = Field(
        0.7,
        description="Share of the budget for gradients; the rest is for the second moments, or with networks the "
        "curvature, released once.",
    )
    largest_count: Positive | None = Field(
        None,
        description="Counts and rates are cut at this public bound (required with model.kind = 'poisson').",
    )
    largest_target: PositiveFloat | None = Field(
        None,
        description="Targets are cut at plus and minus this public bound, in the units in which the model sees them "
        "(required with model.kind = 'linear').",
    )
    public: list[Public] = Field(
        [],
        description="What the users of this config declare to be public, so that it is sent as it is: numbers of rows, "
        "means and scales of columns, categories and fills of columns (`rows`, `scaling`, `columns`).",
    )
    ledger: str = Field(
        "",
        description="Runs in process: a folder whose ledgers count what several runs on the same rows have spent "
        "together. The run folder unless set; nodes have their own in their state-dir.",
    )

    @property
    def on(self) -> bool:
        """Whether anything is protected."""
        return self.kind != "none"

    @property
    def colluders(self) -> int:
        """How many clients of a secure sum may know their own noise."""
        return COLLUDING if self.colluding is None else self.colluding

    def bound(self, inputs: int) -> float:
        """Return C for rows of that many inputs, including the intercept's column."""
        return self.clip if self.clip is not None else min(LARGEST_CLIP, math.sqrt(inputs))
