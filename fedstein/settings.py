"""The base class of every group of settings, and the number types that settings share.

A settings class stands beside the builder that it belongs to. It states the type, the default, the bounds and the
meaning of every key; the config, ``fedstein config`` and ``docs/config.md`` are made from it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1, le=10**9)]
Count = Annotated[int, Field(ge=0, le=10**9)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]  # a share of a whole, above zero
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Settings(BaseModel):
    """One section of the config for one kind. Instances are immutable and reject unknown keys."""

    # The validator of a kind is built when the kind is used for the first time: most processes use a few of many.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
