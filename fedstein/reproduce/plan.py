"""The paper's settings (section IV-A) and the runs behind each figure. Runs that two figures share are one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

BLR, BNN = {"name": "covertype"}, {"name": "mnist"}


class Setting(NamedTuple):
    """One panel's task: data, clients, and how long it is run here."""

    title: str
    data: dict[str, Any]
    partition: dict[str, Any]
    rounds: int
    quick_rounds: int
    seeds: int


SETTINGS: dict[str, Setting] = {
    "blr30": Setting(
        "BLR, 30 clients", BLR, {"kind": "label_ratio", "clients": 30, "rows_per_client": 500}, 150, 40, 5
    ),
    "blr120": Setting(
        "BLR, 120 clients", BLR, {"kind": "label_ratio", "clients": 120, "rows_per_client": 300}, 150, 40, 5
    ),
    "bnn27": Setting(
        "BNN, 27 clients", BNN, {"kind": "classes_per_client", "clients": 27, "rows_per_client": 300}, 100, 10, 3
    ),
    "bnn120": Setting(
        "BNN, 120 clients", BNN, {"kind": "classes_per_client", "clients": 120, "rows_per_client": 90}, 100, 10, 1
    ),
}


class Arm(NamedTuple):
    """One curve: what differs between the curves of a panel, and about how long a round takes (BNN, seconds)."""

    title: str
    settings: dict[str, dict[str, Any]]
    weight: float


ARMS: dict[str, Arm] = {
    "ksd": Arm("KSD", {"selection": {"kind": "ksd"}}, 1.6),
    "hip": Arm("HIP", {"selection": {"kind": "hip"}}, 1.5),
    "round_robin": Arm("Round robin", {"selection": {"kind": "round_robin"}}, 0.7),
    "random": Arm("Random", {"selection": {"kind": "random"}}, 0.7),
    "parallel": Arm("Parallel DSVGD", {"algorithm": {"kind": "parallel_dsvgd"}}, 14.0),
}
WEIGHT = {"blr30": 0.03, "blr120": 0.06, "bnn27": 1.0, "bnn120": 1.4}  # of a round, relative to BNN with 27 clients


class FigurePlan(NamedTuple):
    """One figure of the paper: its panels' settings and the curves in each."""

    title: str
    panels: tuple[str, ...]
    arms: tuple[str, ...]
    density: str | None = None  # None: what the user asked for


FOUR = ("blr30", "blr120", "bnn27", "bnn120")
FIGURES: dict[str, FigurePlan] = {
    "fig1": FigurePlan("KSD and the two baselines", FOUR, ("ksd", "round_robin", "random")),
    "fig2": FigurePlan("HIP and the two baselines", FOUR, ("hip", "round_robin", "random")),
    "fig3": FigurePlan("KSD and HIP", FOUR, ("ksd", "hip")),
    # Parallel DSVGD lives by its KDE, so this figure has the density whose KDE is alive, for both curves.
    "fig4": FigurePlan("HIP and Parallel DSVGD", ("bnn27",), ("hip", "parallel"), "log"),
}


@dataclass(frozen=True)
class Job:
    """One run."""

    setting: str
    arm: str
    density: str
    seed: int
    rounds: int
    full: bool

    @property
    def name(self) -> str:
        size = "-full" if self.full else ""
        return f"{self.setting}{size}-{self.arm}-{self.density}-r{self.rounds}-seed{self.seed}"

    @property
    def weight(self) -> float:
        """About how much work it is, for the time left."""
        return self.rounds * WEIGHT[self.setting] * ARMS[self.arm].weight + 3

    def config(self, threads: int) -> dict[str, Any]:
        """The raw config: the paper's settings, L = L' = 10 and alpha = 1 being defaults of their own."""
        setting = SETTINGS[self.setting]
        name = setting.data["name"] + ("-full" if self.full else "")
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "data": {"name": name},
            "partition": setting.partition,
            "sites": {"density": self.density},
            "algorithm": {"local_steps": 10, "distill_steps": 10, "temperature": 1.0},
            "engine": {"threads": threads},
            "checkpoint": {"every": 25},
        } | merged(ARMS[self.arm].settings)


def merged(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An arm's sections; Parallel DSVGD keeps the common steps too."""
    if "algorithm" in settings:
        common = {"local_steps": 10, "distill_steps": 10, "temperature": 1.0}
        return {**settings, "algorithm": {**common, **settings["algorithm"]}}
    return settings


@dataclass(frozen=True)
class Plan:
    """Which figures, and the jobs of each panel's curves."""

    figures: tuple[str, ...]
    curves: dict[tuple[str, str, str], tuple[Job, ...]]  # (figure, setting, arm) -> one job a seed

    @property
    def jobs(self) -> list[Job]:
        """Every job once: seeds first, so that an interrupted reproduction has whole comparisons."""
        unique = {job: None for jobs in self.curves.values() for job in jobs}
        return sorted(unique, key=lambda job: (job.seed, list(SETTINGS).index(job.setting), job.arm))


def make_plan(
    figures: Sequence[str], *, seeds: int | None, rounds: int | None, density: str, full: bool, quick: bool
) -> Plan:
    """The jobs of the named figures; numbers left out are those of the settings."""
    curves = {}
    for name in figures:
        figure = FIGURES[name]
        for panel in figure.panels:
            setting = SETTINGS[panel]
            count = seeds or (min(2, setting.seeds) if quick else setting.seeds)
            length = rounds or (setting.quick_rounds if quick else setting.rounds)
            for arm in figure.arms:
                used = figure.density or density
                curves[name, panel, arm] = tuple(Job(panel, arm, used, s, length, full) for s in range(count))
    return Plan(tuple(figures), curves)
