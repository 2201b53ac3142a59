"""Groups of runs that differ only in the seed.

The label of a group names the settings in which it differs from the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedstein.errors import InputError
from fedstein.report.load import Run

ABSENT = "–"
LABEL_KEYS = 3  # a label with more keys is shortened to the keys that distinguish the groups


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, sorted by seed. `config` has flat keys such as "selection.kind" and no seed."""

    label: str
    config: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.seed for run in self.runs)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by configuration, in the order in which they were given.

    Args:
        runs: The runs.

    Returns:
        The groups.

    Raises:
        InputError: If two runs have the same configuration and the same seed.
    """
    configs: list[dict[str, Any]] = []
    members: list[list[Run]] = []
    for run in runs:
        config = flatten(run.config)
        config.pop("seed", None)
        if isinstance(barred := config.get("selection.barred"), list):
            config["selection.barred"] = [run.client_names.get(client, client) for client in barred]
        config.setdefault("evaluate.where", "server")  # older run folders do not have this key
        if config not in configs:
            configs.append(config)
            members.append([])
        members[configs.index(config)].append(run)
    for same in members:
        _refuse_twins(same)
    labels = labels_of(configs)
    return [
        Group(label, config, tuple(sorted(same, key=lambda run: run.seed)))
        for label, config, same in zip(labels, configs, members, strict=True)
    ]


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ between configurations: kinds first, then in the order of the files.

    Args:
        configs: Flat configurations.
    """
    keys = list(dict.fromkeys(key for config in configs for key in config))
    absent = object()
    differing = [key for key in keys if any(c.get(key, absent) != configs[0].get(key, absent) for c in configs)]
    return sorted(differing, key=lambda key: not key.endswith(".kind"))  # sorted() is stable


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested configuration: {"selection": {"kind": "ksd"}} -> {"selection.kind": "ksd"}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def show(value: Any) -> str:
    """Format a value of a configuration: text without quotes, short numbers, everything else as JSON."""
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _refuse_twins(runs: Sequence[Run]) -> None:
    seen: dict[int, Run] = {}
    for run in runs:
        twin = seen.setdefault(run.seed, run)
        if twin is not run:
            raise InputError(
                f"expected each configuration once per seed, got {twin.path} and {run.path}, "
                f"equal in all of config.toml (seed {run.seed}); leave one of them out"
            )


def labels_of(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name configurations by the settings in which they differ.

    Args:
        configs: Flat configurations, at least one.

    Returns:
        One label for each.
    """
    keys = differing_keys(configs)
    if not keys:
        kinds = [configs[0].get(key) for key in ("algorithm.kind", "selection.kind")]
        return [", ".join(str(kind) for kind in kinds if kind) or "run"]
    if len(keys) > LABEL_KEYS:
        keys = _fewest(configs, keys)
    keys = [key for key in keys if not _follows_from_kind(key, keys, configs)]
    labels = [_label(config, keys) for config in configs]
    return [label if labels.count(label) == 1 else f"{label} #{i + 1}" for i, label in enumerate(labels)]


def _follows_from_kind(key: str, keys: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a key differs only because some of the compared kinds do not have it."""
    section, _, name = key.rpartition(".")
    present = [config[key] for config in configs if key in config]
    return name != "kind" and f"{section}.kind" in keys and all(value == present[0] for value in present)


def _fewest(configs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """Keep a key only if it distinguishes more groups than the keys before it."""
    taken: list[str] = []
    told_apart = 1
    for key in keys:
        distinct = len({_label(config, [*taken, key]) for config in configs})
        if distinct > told_apart:
            taken.append(key)
            told_apart = distinct
    return taken or list(keys[:LABEL_KEYS])


def _label(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    parts = []
    for key in keys:
        if key in config:
            if key == "sites.kind" and config[key] == "none":  # a method without sites is named by its algorithm
                key = "algorithm.kind"
            name = key.rpartition(".")[2]
            parts.append(show(config[key]) if name == "kind" else f"{name}={show(config[key])}")
    return ", ".join(parts) or "base"
