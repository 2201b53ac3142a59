"""The sections of a config, each an instance of the settings class that its kind names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator

from fedstein.data.partition_kinds import PartitionSettings
from fedstein.federation.channel import ChannelSettings
from fedstein.federation.engine import EngineSettings
from fedstein.inference.methods import MethodSettings
from fedstein.inference.methods.robust_sites import RobustSettings
from fedstein.inference.sites import SiteSettings
from fedstein.models import ModelSettings
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs.sections import SECTIONS, CheckpointSettings, DataSettings, EvaluateSettings, make_section
from fedstein.selection import SelectionSettings
from fedstein.settings import Positive, Settings

TOP = ("seed", "rounds")  # keys outside any section


class Sections(Settings):
    """All sections, each valid on its own. ``Config`` also checks that they fit together."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        0, description="Seed of the partition, of the start and of every draw."
    )
    rounds: Positive = Field(120, description="I, the number of global rounds.")
    data: DataSettings
    partition: SerializeAsAny[PartitionSettings]
    model: SerializeAsAny[ModelSettings]
    sites: SerializeAsAny[SiteSettings]
    selection: SerializeAsAny[SelectionSettings]
    algorithm: SerializeAsAny[MethodSettings]
    engine: SerializeAsAny[EngineSettings]
    channel: ChannelSettings = ChannelSettings.model_validate({})  # missing in run folders of earlier versions
    evaluate: EvaluateSettings
    checkpoint: CheckpointSettings
    privacy: PrivacySettings = PrivacySettings.model_validate({})  # missing in the folders of runs that are not private

    robust: RobustSettings = RobustSettings.model_validate({})  # missing in the folders of runs that are not robust

    @field_validator(*SECTIONS, mode="before")
    @classmethod
    def _by_kind(cls, values: Any, info: ValidationInfo) -> Settings:
        assert info.field_name is not None, "a field validator has a field"
        return make_section(info.field_name, values)
