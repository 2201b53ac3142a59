"""The sections of the config: which have kinds, and the settings class of every kind.

A section with kinds takes its settings class from the part that ``kind`` names, built-in or plug-in. The sections that
have no kinds are settings classes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from fedstein.data import DATASETS
from fedstein.data.partition_kinds import PARTITION_KINDS
from fedstein.errors import InputError
from fedstein.federation.channel import ChannelSettings
from fedstein.federation.engine import ENGINES
from fedstein.inference.methods import METHODS
from fedstein.inference.methods.robust_sites import RobustSettings
from fedstein.inference.sites import SITES
from fedstein.models import MODELS, ModelSettings
from fedstein.plugin_errors import plugin_code
from fedstein.privacy.settings import PrivacySettings
from fedstein.registry import Registry, unknown_name
from fedstein.runs.values import literal_choices, sentence
from fedstein.selection import SCHEMES
from fedstein.settings import Fraction, Positive, Settings

CUSTOM = "custom"  # the ``model.kind`` of a model that the user passes to ``fedstein.fit``


class DataSettings(Settings):
    """The keys of ``[data]``. Which of them a dataset takes is in ``DATASETS``."""

    name: str = Field(
        "covertype",
        description="A dataset of `fedstein data list`; `file` for your own (also where `path` is set), `nodes` for "
        "rows that stay on nodes.",
    )
    path: str | list[str] | None = Field(
        None,
        description="Your own files: CSV, Parquet (extra `parquet`) or NPZ; a file, a folder, a pattern, or a list. "
        "Of several files each is a client.",
    )
    target: str | None = Field(None, description="The column to predict; for files the default is the last column.")
    features: list[str] | None = Field(
        None, description="The columns to predict from; for files the default is all other columns."
    )
    drop: list[str] | None = Field(None, description="Columns of the files that are not used.")
    categories: dict[str, list[str | int | float | bool]] | list[str] | None = Field(
        None,
        description="The categories of each column that has some, or the columns whose categories are to be found. "
        "Text columns are categories in any case; of nodes, `{}` says that there are none, and they are not asked.",
    )
    coding: Literal["one-hot", "reference"] | None = Field(
        None,
        description="How categories become numbers: a 0/1 column for each, or for each but the first, which is then "
        "what the others are compared with.",
    )
    missing: Literal["mean", "mode", "indicator"] | None = Field(
        None,
        description="What a missing value becomes: the mean of the training rows, their most frequent value, or the "
        "mean with a further column that says where it is missing. Refused unless set.",
    )
    fill: dict[str, float | str] | None = Field(
        None,
        description="What takes the place of a missing value in each column of the nodes' files; found from sums over "
        "their training rows unless given.",
    )
    labels: list[str | int] | None = Field(
        None, description="Every label in the order of the classes; a regression has none. Default: those in the files."
    )
    client: str | None = Field(None, description="The column that names the owner of each row.")
    task: Literal["classification", "regression"] | None = Field(
        None, description="The kind of task; by default it is found from the target or the labels."
    )
    test_path: str | None = Field(None, description="A file of test rows, which the server has.")
    test_fraction: Fraction | None = Field(None, description="Share of the rows that becomes the test rows.")
    standardize: bool | None = Field(
        None, description="Whether numeric columns are scaled by the mean and deviation of the training rows."
    )


class EvaluateSettings(Settings):
    """The keys of ``[evaluate]``."""

    every: Positive = Field(1, description="Rounds between evaluations; the last round is always evaluated.")
    where: Literal["server", "clients"] = Field(
        "server", description="Who evaluates: the server on test rows, or each client on rows that it holds out."
    )
    fraction: Fraction | None = Field(
        None, description="Share of its rows that each client holds out (where = 'clients')."
    )
    join: bool = Field(
        False,
        description="Whether the reports of the next round come with the evaluation (where = 'clients'): on Flower "
        "each candidate gets one message less, and particles that are sent unchanged are sent once instead of twice.",
    )
    patience: Positive | None = Field(
        None,
        description="Evaluations without a better NLL after which the run ends early (where = 'clients': on rows that "
        "clients hold out, never on test rows).",
    )
    temperature: Literal["none", "fit"] = Field(
        "none",
        description="`fit` finds a calibration temperature T on the rows that clients hold out, from sums that they "
        "send (where = 'clients'); predictions from particles are then softmax(log p / T). Records have T as "
        "`temperature`.",
    )
    metrics: list[str] = Field([], description="Further metrics, beside the built-in ones, by name or import path.")


class CheckpointSettings(Settings):
    """The keys of ``[checkpoint]``."""

    every: Positive = Field(10, description="Rounds between checkpoints.")
    keep: Literal["all"] | None = Field(
        None,
        description="`all` keeps the sites of a finished run even if they take more than 32 MB. Otherwise such sites "
        "are pruned: they can be computed again from the rows.",
    )


FAMILIES: dict[str, Mapping[str, Any]] = {
    "partition": PARTITION_KINDS,
    "model": MODELS,
    "sites": SITES,
    "selection": SCHEMES,
    "algorithm": METHODS,
    "engine": ENGINES,
}
PLAIN: dict[str, type[Settings]] = {
    "data": DataSettings,
    "channel": ChannelSettings,
    "evaluate": EvaluateSettings,
    "checkpoint": CheckpointSettings,
    "privacy": PrivacySettings,
    "robust": RobustSettings,
}
SECTIONS = (
    "data",
    *FAMILIES,
    "channel",
    "evaluate",
    "checkpoint",
    "privacy",
    "robust",
)  # the order of the sections in a config file


def kinds(section: str) -> list[str]:
    """The valid values of ``section.kind``, entry points of installed packages included."""
    return list(FAMILIES[section])


def find_kind(section: str, name: Any) -> Any:
    """The part that a kind names.

    Args:
        section: A section that has kinds.
        name: The value of its ``kind``: a name, an entry point, or an import path.

    Returns:
        A ``ModelKind``, ``SiteKind`` and so on.

    Raises:
        InputError: There is no such part; the message lists the valid names.
    """
    family = FAMILIES[section]
    if isinstance(family, Registry):
        return family.find(name)
    if not isinstance(name, str) or name not in family:
        raise InputError(unknown_name(f"value of {section}.kind", name, list(family)))
    return family[name]


def loaded_kinds(section: str) -> dict[str, Any]:
    """The parts of a section that are registered without importing a plug-in, by name."""
    family = FAMILIES[section]
    return family.loaded() if isinstance(family, Registry) else dict(family)


def settings_class(section: str, kind: Any = None) -> type[Settings]:
    """The settings class of a section.

    Args:
        section: The section.
        kind: The value of its ``kind``, for sections that have kinds.

    Returns:
        The class.

    Raises:
        InputError: There is no such kind.
    """
    if section in PLAIN:
        return PLAIN[section]
    if section == "model" and kind == CUSTOM:
        return ModelSettings
    return find_kind(section, kind).settings


def all_classes(section: str) -> Iterator[type[Settings]]:
    """The settings classes of a section, one for each kind that is registered without importing a plug-in."""
    if section in PLAIN:
        yield PLAIN[section]
    else:
        yield from (part.settings for part in loaded_kinds(section).values())


def all_keys(section: str) -> list[str]:
    """Every key that some kind of a section takes; keys that all kinds take come first."""
    classes = list(all_classes(section))
    every = dict.fromkeys(key for settings in classes for key in settings.model_fields)
    shared = [key for key in every if all(key in settings.model_fields for settings in classes)]
    return list(dict.fromkeys([*shared, *every]))


def takers(section: str, key: str) -> list[str]:
    """The kinds, or in ``[data]`` the datasets, that take a key."""
    if section == "data":
        return [name for name, info in DATASETS.items() if key in info.keys]
    return [name for name, part in loaded_kinds(section).items() if key in part.settings.model_fields]


def make_section(section: str, values: Any) -> Settings:
    """Validate one section.

    Args:
        section: The name of the section.
        values: Its keys and values, or an instance of the settings class.

    Returns:
        An instance of the settings class of the kind that the values name.

    Raises:
        InputError: A key is missing or unknown, or a value is wrong.
    """
    if isinstance(values, Settings):
        return values
    if not isinstance(values, Mapping):
        raise InputError(f"[{section}] must be a section of keys, got {values!r}")
    if section in FAMILIES and "kind" not in values:
        raise InputError(f"{section}.kind is missing; expected one of: {', '.join(kinds(section))}")
    settings = settings_class(section, values.get("kind"))
    subject, doing = f"{section}.kind = {values.get('kind')!r}", f"its settings class {settings.__name__} failed"
    with plugin_code(subject, doing, settings):
        try:
            return settings.model_validate(dict(values))
        except ValidationError as error:
            raise InputError(complaint_of(error, section, settings, values)) from None


def complaint_of(error: ValidationError, section: str, settings: type[Settings], values: Mapping[str, Any]) -> str:
    """The first of pydantic's errors about a section, with the valid choices if there are any."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    choices = literal_choices(settings.model_fields[key].annotation) if key in settings.model_fields else []
    if first["type"] == "literal_error" and choices:
        belongs = f" for {values['kind']}" if section in FAMILIES else ""
        return unknown_name(f"value of {section}.{key}{belongs}", first["input"], choices)
    return sentence(error, section)
