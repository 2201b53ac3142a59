"""The numbers of groups of runs: spread over seeds, spread within a run, and differences paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, Metrics
from fedstein.report.groups import ABSENT, Group, differing_keys, group_runs
from fedstein.report.load import MEASURES, Run
from fedstein.runs.doubts import doubts_of_run
from fedstein.runs.folder import RunFolder

LEVEL = 0.95
SPELT_OUT = 3  # the most runs whose reasons for doubt are spelt out
COSTS = ("bytes_down", "bytes_up", "seconds")
GRADIENTS = ("train", "site", "report")


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, the standard deviation between seeds (n - 1), and the mean standard deviation within a run."""

    mean: float | None
    between: float | None
    within: float | None = None


@dataclass(frozen=True)
class GroupSummary:
    """The numbers of one group over its seeds: `tail` and `final` by metric, and `cost` per round by name."""

    group: Group
    tail: dict[str, Spread]
    final: dict[str, Spread]
    cost: dict[str, float | None]
    distance: dict[str, Spread]  # from NUTS, by measure; without a mean if a seed has no reference

    @property
    def measured(self) -> bool:
        """Whether any run of the group has a NUTS reference."""
        return any(run.reference for run in self.group.runs)


@dataclass(frozen=True)
class Difference:
    """The tail of `label` minus the tail of `against`, over their common seeds. With one seed there is no interval."""

    label: str
    against: str
    metric: str
    seeds: tuple[int, ...]
    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Summary:
    """The content of a report. `metric` is the leading metric: accuracy, or rmse if no run has an accuracy."""

    metric: str
    groups: tuple[GroupSummary, ...]
    differences: tuple[Difference, ...]
    differing: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that any run has a value of."""
        return tuple(m for m in self.named if any(line.get(m) is not None for r in self.runs for line in r.rounds))

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics that any run names, the built-in ones first."""
        return all_metrics(self.runs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of all groups."""
        return tuple(run for group in self.groups for run in group.group.runs)


def all_metrics(runs: Sequence[Run]) -> tuple[str, ...]:
    """The names of the metrics of all runs, each once."""
    return tuple(dict.fromkeys(name for run in runs for name in run.metrics))


def summarise(runs: Sequence[Run]) -> Summary:
    """Group runs by configuration and compare every group with the first one.

    Args:
        runs: The runs, the group to compare with first.

    Returns:
        The numbers of the report.

    Raises:
        InputError: If two runs have the same configuration and seed.
    """
    groups = group_runs(runs)
    metric = "accuracy" if any(run.final["accuracy"] is not None for run in runs) else "rmse"
    differences = tuple(_difference(group, groups[0], metric) for group in groups[1:])
    return Summary(
        metric=metric,
        groups=tuple(_summary(group, all_metrics(runs)) for group in groups),
        differences=differences,
        differing=tuple(differing_keys([group.config for group in groups])),
        notes=tuple(_notes(groups, differences, metric)),
    )


def _summary(group: Group, names: Sequence[str]) -> GroupSummary:
    cost = {name: _mean([run.per_round(name) for run in group.runs]) for name in COSTS}
    for part in GRADIENTS:
        cost[f"row_gradients_{part}"] = _mean([run.gradients_per_round(part) for run in group.runs])
    return GroupSummary(
        group,
        tail={
            m: _spread([_tail(run, m)["mean"] for run in group.runs], [_tail(run, m)["sd"] for run in group.runs])
            for m in names
        },
        final={m: _spread([run.final.get(m) for run in group.runs]) for m in names},
        cost=cost,
        distance={name: _spread([run.distance(name) for run in group.runs]) for name in MEASURES},
    )


def _tail(run: Run, metric: str) -> Metrics:
    """The tail of a metric that the run may not have."""
    return run.tail.get(metric) or {"mean": None, "sd": None}


def _spread(values: Sequence[float | None], within: Sequence[float | None] = ()) -> Spread:
    """Summarise values over seeds.

    If the value of one seed is not finite there is no mean, which would be too favourable.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Spread(None, None)
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, _mean(within))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _difference(group: Group, first: Group, metric: str) -> Difference:
    ours, theirs = ({run.seed: run.tail[metric]["mean"] for run in g.runs} for g in (group, first))
    pairs = {seed: (ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())}
    gaps = {seed: a - b for seed, (a, b) in pairs.items() if a is not None and b is not None}
    mean, low, high = paired_interval(list(gaps.values())) if gaps else (None, None, None)
    return Difference(group.label, first.label, metric, tuple(gaps), mean, low, high)


def paired_interval(gaps: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Compute the mean of paired differences and Student's 95% interval.

    Args:
        gaps: The differences, one for each seed; at least one.

    Returns:
        The mean, and the lower and upper end, which are None with fewer than two differences.
    """
    mean = fmean(gaps)
    if len(gaps) < 2:
        return mean, None, None
    half = float(stdtrit(len(gaps) - 1, 0.5 + LEVEL / 2)) * stdev(gaps) / sqrt(len(gaps))
    return mean, mean - half, mean + half


def _notes(groups: Sequence[Group], differences: Sequence[Difference], metric: str) -> list[str]:
    notes = []
    if all(len(group.runs) == 1 for group in groups):
        seed = "One seed each" if len(groups) > 1 else "One seed"
        notes.append(f"{seed}: no standard deviation between seeds and no interval.")
    elif single := [group.label for group in groups if len(group.runs) == 1]:
        notes.append(f"One seed only, so no standard deviation between seeds: {'; '.join(single)}.")
    if any(len(group.runs) > 1 for group in groups):
        for d in differences:
            if d.low is None:
                notes.append(f"No interval for {d.label} against {d.against}: fewer than two seeds in common.")
    if unfinished := [run for group in groups for run in group.runs if run.summary is None]:
        listed = "; ".join(f"{run.path.name} ({run.status})" for run in unfinished)
        notes.append(f"Not finished, so the tail is the last quarter of the rounds so far: {listed}.")
    notes += _reference_notes(groups)
    notes += _posterior_notes(groups)
    for group in groups:
        if any(run.tail[metric]["mean"] is None for run in group.runs):
            notes.append(f"{group.label}: the tail {metric} of at least one run is missing or not finite, so no mean.")
    return notes


def _posterior_notes(groups: Sequence[Group]) -> list[str]:
    """Return the notes on posteriors whose intervals are not to be trusted."""
    found = {}
    for run in (run for group in groups for run in group.runs if run.summary is not None):
        with suppress(InputError):  # a run of an earlier version has a config that is not read any more
            folder, config = RunFolder.open(run.path)
            if reasons := doubts_of_run(folder, config, run.rounds):
                found[run.path.name] = reasons
    if len(found) > SPELT_OUT:
        return [f"Intervals of these runs are not to be trusted, fedstein summary says why: {'; '.join(found)}."]
    return [f"Intervals of {name} are not to be trusted: {' '.join(reasons)}" for name, reasons in found.items()]


def _reference_notes(groups: Sequence[Group]) -> list[str]:
    """Return the notes on missing or doubtful NUTS references."""
    notes = []
    runs = [run for group in groups for run in group.runs]
    without = [run for run in runs if run.reference is None]
    if 0 < len(without) < len(runs):
        listed = "; ".join(run.path.name for run in without)
        notes.append(f"Without a NUTS reference (fedstein reference makes it): {listed}.")
    for run in runs:
        if run.reference is not None and not run.reference["trusted"]:
            found = {key: run.reference["nuts"][key] for key in ("divergences", "max_rhat", "min_ess")}
            rhat, ess = (ABSENT if found[key] is None else f"{found[key]:.4g}" for key in ("max_rhat", "min_ess"))
            notes.append(
                f"The NUTS reference of {run.path.name} is not to be trusted ({found['divergences']} divergences, "
                f"split R-hat {rhat}, ESS {ess}): give fedstein reference more --warmup and --draws."
            )
    return notes


def group_row(summary: GroupSummary, difference: Difference | None) -> dict[str, Any]:
    """Build the CSV row of a group.

    Args:
        summary: The numbers of the group.
        difference: The difference from the first group, if there is one.
    """
    group = summary.group
    statuses = {run.status for run in group.runs}
    row: dict[str, Any] = {
        "level": "group",
        "group": group.label,
        "seed": None,
        "seeds": len(group.runs),
        "folder": None,
        "status": statuses.pop() if len(statuses) == 1 else "some unfinished",
        "rounds": max(run.rounds[-1]["round"] for run in group.runs),
    }
    for m in summary.tail:
        row[f"tail_{m}"] = summary.tail[m].mean
        row[f"tail_{m}_sd_between_seeds"] = summary.tail[m].between
        row[f"tail_{m}_sd_within_run"] = summary.tail[m].within
        row[f"final_{m}"] = summary.final[m].mean
    row |= {f"{name}_per_round": value for name, value in summary.cost.items()}
    for name in ("mean", "low", "high"):
        row[f"difference_{name}"] = getattr(difference, name) if difference else None
    counts = {run.reference["particles"]["count"] for run in group.runs if run.reference}
    row["nuts_particles"] = counts.pop() if len(counts) == 1 else None
    for name, spread in summary.distance.items():
        row[f"nuts_{name}"], row[f"nuts_{name}_sd_between_seeds"] = spread.mean, spread.between
        row[f"nuts_draws_{name}"] = _spread([run.distance(name, "draws") for run in group.runs]).mean
    return row


def seed_row(group: Group, run: Run, folder: str, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """Build the CSV row of one run, with the same columns as `group_row`.

    Args:
        group: The group of the run.
        run: The run.
        folder: The name of its folder.
        names: The metrics to list.
    """
    row: dict[str, Any] = {
        "level": "seed",
        "group": group.label,
        "seed": run.seed,
        "seeds": 1,
        "folder": folder,
        "status": run.status,
        "rounds": run.rounds[-1]["round"],
    }
    for m in names:
        row[f"tail_{m}"] = _tail(run, m)["mean"]
        row[f"tail_{m}_sd_between_seeds"] = None
        row[f"tail_{m}_sd_within_run"] = _tail(run, m)["sd"]
        row[f"final_{m}"] = run.final.get(m)
    row |= {f"{name}_per_round": run.per_round(name) for name in COSTS}
    row |= {f"row_gradients_{part}_per_round": run.gradients_per_round(part) for part in GRADIENTS}
    row |= dict.fromkeys(("difference_mean", "difference_low", "difference_high"))
    row["nuts_particles"] = run.reference["particles"]["count"] if run.reference else None
    for name in MEASURES:
        row |= {f"nuts_{name}": run.distance(name), f"nuts_{name}_sd_between_seeds": None}
        row[f"nuts_draws_{name}"] = run.distance(name, "draws")
    return row
