"""Runs that differ only in the seed belong together; copies of one run count once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedstein.report.follow import FollowedRun
from fedstein.report.groups import flatten, labels_of


@dataclass(frozen=True)
class FollowedGroup:
    """Runs of one configuration, sorted by seed."""

    label: str
    runs: tuple[FollowedRun, ...]


def group_followed(runs: Sequence[FollowedRun]) -> tuple[list[FollowedGroup], list[str]]:
    """Group runs by configuration.

    Args:
        runs: The runs, in the order in which they were chosen.

    Returns:
        The groups, and notes on runs that are left out because they have the configuration and seed of another.
    """
    configs: list[dict[str, Any]] = []
    members: list[list[FollowedRun]] = []
    notes = []
    for run in runs:
        config = flatten(run.config) if run.config else {"run": run.id}
        config.pop("seed", None)
        config.setdefault("evaluate.where", "server")  # older run folders do not have this key
        if config not in configs:
            configs.append(config)
            members.append([])
        same = members[configs.index(config)]
        twin = next((other for other in same if other.seed == run.seed), None)
        if twin is None:
            same.append(run)
        else:
            notes.append(f"{run.id} has the configuration and the seed of {twin.id}, so it is left out.")
    labels = labels_of(configs) if configs else []
    pairs = zip(labels, members, strict=True)
    return [FollowedGroup(label, tuple(sorted(same, key=lambda run: run.seed))) for label, same in pairs], notes
