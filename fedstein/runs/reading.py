"""Layers of settings, and the data that they name, become one config. ``run`` and ``compare`` read theirs here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.data import Dataset
from fedstein.runs.config import Config, check_names, check_section, resolve
from fedstein.runs.config_sources import Layer, combine
from fedstein.runs.federate import facts_of, load_dataset


class ReadConfig(NamedTuple):
    """A resolved config, its data, and notes on keys of earlier layers that were dropped."""

    config: Config
    dataset: Dataset
    notes: list[str]


def resolve_layers(layers: Sequence[Layer], load: Callable[[Mapping[str, Any]], Dataset] = load_dataset) -> ReadConfig:
    """Load the data that layers of settings name, and resolve the settings with what is known of the data.

    Args:
        layers: (name, nested settings) each; later ones win.
        load: Raw config -> dataset.

    Returns:
        The config, the data and the notes.

    Raises:
        InputError: The settings, or the data, are wrong.
    """
    raw = combine(layers)
    check_names(raw)
    check_section("data", raw.get("data", {}))
    layers = [(name, with_absolute_paths(layer)) for name, layer in layers]
    dataset = load(combine(layers))
    if dataset.target_name:  # a file: what was found out about it is spelt out
        layers.append(("the data", {"data": {"target": dataset.target_name, "task": dataset.task}}))
    config, notes = resolve(layers, facts_of(dataset))
    return ReadConfig(config, dataset, notes)


def with_absolute_paths(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Make the paths in ``[data]`` absolute, so that the run can be resumed from any folder."""
    data = raw.get("data", {})
    whole = {key: str(Path(data[key]).expanduser().absolute()) for key in ("path", "test_path") if data.get(key)}
    return {**raw, "data": {**data, **whole}} if whole else raw
