"""Makes one config from layers of settings and the data that they name, for ``run`` and ``compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.data import Dataset
from fedstein.data.file_sets import expand
from fedstein.runs.client_names import barred_names, with_barred
from fedstein.runs.config import Config, check_names, check_section, resolve
from fedstein.runs.config_sources import Layer, as_layers, combine
from fedstein.runs.federate import client_names, facts_of, load_dataset


class ReadConfig(NamedTuple):
    """A resolved config, its data, and notes on keys of earlier layers that were dropped."""

    config: Config
    dataset: Dataset
    notes: list[str]


def resolve_layers(layers: Sequence[Layer], load: Callable[[Mapping[str, Any]], Dataset] = load_dataset) -> ReadConfig:
    """Load the data that layers of settings name, and resolve the settings with what is known about the data.

    Args:
        layers: The layers, each (name, nested settings). Later layers take precedence.
        load: Raw config -> dataset.

    Returns:
        The config, the data and the notes.

    Raises:
        InputError: The settings, or the data, are wrong.
    """
    raw = combine(layers)
    check_names(raw)
    check_section("data", raw.get("data", {}))
    layers = as_layers([(name, with_absolute_paths(layer)) for name, layer in layers])
    raw = combine(layers)
    dataset = load(raw)
    if found := found_settings(dataset, raw.get("data", {})):
        layers.append(("the data", {"data": found}))
    if barred_names(layers):  # the ids of clients are known only after the partition is
        partitioned, _ = resolve(with_barred(layers, None), facts_of(dataset))
        usual = [f"client-{k}" for k in range(partitioned.partition.clients)]
        layers = with_barred(layers, client_names(partitioned, dataset) or usual)
    config, notes = resolve(layers, facts_of(dataset))
    return ReadConfig(config, dataset, notes)


def with_absolute_paths(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """List the files of ``[data]`` with absolute paths, so that the run can be resumed from any folder."""
    data = raw.get("data", {})
    whole: dict[str, Any] = {}
    if isinstance(test := data.get("test_path"), str) and test:
        whole["test_path"] = str(Path(test).expanduser().absolute())
    if data.get("path"):
        files = [str(file) for file in expand(data["path"])]
        whole["path"] = files[0] if len(files) == 1 else files
    return {**raw, "data": {**data, **whole}} if whole else raw


def found_settings(dataset: Dataset, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was found out about the user's own files, as keys of ``[data]``.

    Args:
        dataset: The dataset.
        settings: ``[data]`` as the user wrote it.

    Returns:
        The keys that the run folder records: target, task, columns, categories and labels. Empty for other data.
    """
    if not dataset.target_name or settings.get("name") not in ("file", "nodes"):
        return {}
    found: dict[str, Any] = {"target": dataset.target_name, "task": dataset.task}
    if settings.get("name") != "file" or dataset.encoding is None:
        return found
    found["features"] = list(dataset.encoding.names)
    if dataset.encoding.categories:
        found["categories"] = dataset.encoding.categories
    if dataset.label_names:
        found["labels"] = list(dataset.label_names)
    return found
