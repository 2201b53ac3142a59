"""The config: settings from files and flags become one validated, frozen, fully spelt-out ``Config``.

Every section that has kinds holds an instance of the settings class of its kind. The settings class is in the module of
its builder. ``resolve`` adds the defaults that depend on several parts (``defaults``) and refuses unknown names. It
also refuses keys that have no use, unless they are leftovers of an overridden base config (``unused``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError, model_validator

from fedstein.errors import InputError
from fedstein.federation.engine import EngineSettings
from fedstein.machine import cores
from fedstein.registry import UnlistedPlugin
from fedstein.registry import unknown_name as unknown  # noqa: F401 - for others to import
from fedstein.runs.config_checks import check_fit, check_names, check_nodes, check_values
from fedstein.runs.config_sources import Layer, as_layers, combine, overridden_presets, read_toml
from fedstein.runs.config_sources import merge as merge
from fedstein.runs.config_sources import parse_setting as parse_setting
from fedstein.runs.config_sources import read_layers as read_layers
from fedstein.runs.config_sources import with_preset as with_preset
from fedstein.runs.defaults import RULES, Facts, drafted
from fedstein.runs.schema import Sections
from fedstein.runs.sections import FAMILIES, make_section
from fedstein.runs.unused import refuse_contradictions
from fedstein.runs.values import sentence

# Keys with rules that earlier versions did not write. The defaults of their classes are what those versions did.
ADDED = ("sites.expand",)


class Config(Sections):
    """A complete config whose parts fit together. ``to_toml`` writes it, and ``load_config`` reads it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        check_fit(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The config as plain values, without keys that have no value and unused keys of [privacy] and [robust]."""
        plain = self.model_dump(exclude_none=True)
        if not self.privacy.on:
            kept = {key: plain["privacy"][key] for key in ("kind", "sums")}
            plain["privacy"] = kept
            if kept["sums"] == "plain":
                del plain["privacy"]
        if self.robust.kind == "none":
            plain["robust"] = {"rest": self.robust.rest}
            if not self.robust.rest:
                del plain["robust"]
        return plain

    def to_toml(self) -> str:
        """The text of ``config.toml``."""
        return tomli_w.dumps(self.to_dict())


def computing(engine: EngineSettings) -> EngineSettings:
    """The engine's settings that results depend on, without the settings of how to reach and wait for clients.

    Args:
        engine: The settings of ``[engine]``.

    Returns:
        Settings with the same kind, threads, precision and device; the rest are defaults.
    """
    return EngineSettings.model_validate(engine.model_dump(include={"kind", "threads", "precision", "device"}))


def resolve(raw: Mapping[str, Any] | Sequence[Layer], facts: Facts) -> tuple[Config, list[str]]:
    """Resolve settings to the full config, with what is known about the data.

    Args:
        raw: A nested dict; or layers, each (name, nested dict), such as a preset, a file and a command. Later layers
            take precedence.
        facts: What is known about the data, and about a model of the user's own.

    Returns:
        The config, and notes on presets and keys of earlier layers that have no effect.

    Raises:
        InputError: Something is unknown, impossible, contradictory, or of no use.
    """
    layers = as_layers(raw)
    written = combine(layers)
    check_names(written)
    check_values(written)
    draft = drafted(written, facts)
    check_nodes(draft)
    dropped, notes = refuse_contradictions(draft, layers, facts)
    values = draft.values(without=dropped)
    values["engine"]["threads"] = values["engine"].get("threads") or cores()
    return _validated(values), [*overridden_presets(layers), *notes]


def load_config(path: Path) -> Config:
    """Read the config of a run folder, which has every key.

    Args:
        path: A ``config.toml``.

    Returns:
        The config.

    Raises:
        InputError: The file cannot be read, or is not the config of a run.
    """
    return whole_config(read_toml(path), str(path))


def whole_config(raw: Mapping[str, Any], where: str) -> Config:
    """Build a config from settings that have every key, from a run folder or from a server.

    Args:
        raw: The nested config.
        where: The source of the config, for messages.

    Returns:
        The config.

    Raises:
        UnlistedPlugin: The config names a plug-in that may not be used here.
        InputError: It is not the config of a run.
    """
    check_names(raw, custom=True)
    try:
        for key in ("seed", "rounds", "data.name"):
            _require(raw, key)
        config = _validated(raw)
        for key in dict.fromkeys(rule.key for rule in RULES if rule.key.partition(".")[0] in FAMILIES):
            section, _, name = key.partition(".")
            if key not in ADDED and getattr(getattr(config, section), name, None) is not None:
                _require(raw, key)
    except UnlistedPlugin:
        raise
    except InputError as error:
        raise InputError(f"{where} is not the config of a run: {error}") from None
    return config


def check_section(name: str, values: Mapping[str, Any]) -> None:
    """Check one section on its own, before other keys are derived from it.

    Args:
        name: The section.
        values: Its keys and values.

    Raises:
        InputError: A value is wrong.
    """
    make_section(name, values)


def _require(raw: Mapping[str, Any], key: str) -> None:
    """Raise an error if the config lacks the key, whose default depends on other parts."""
    section, _, name = key.rpartition(".")
    if name not in (raw.get(section, {}) if section else raw):
        raise InputError(f"{key}: field required")


def _validated(values: Mapping[str, Any]) -> Config:
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(sentence(error)) from None
