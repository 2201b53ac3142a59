"""The paper's settings (section IV-A), a few beyond them, and the runs behind each figure.

Runs that two figures share are one job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedstein.reproduce.arms import ARMS, TUNED

BLR, BNN = {"name": "covertype"}, {"name": "mnist"}


class Setting(NamedTuple):
    """One panel's task: data, clients, and how long it is run here."""

    title: str
    data: dict[str, Any]
    partition: dict[str, Any]
    rounds: int
    quick_rounds: int
    seeds: int
    model: Mapping[str, Any] = {}  # where it is not the data's usual one


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
    "small27": Setting(
        "Small BNN, 27 clients",
        BNN,
        {"kind": "classes_per_client", "clients": 27, "rows_per_client": 300},
        81,
        10,
        5,
        {"hidden": [20]},
    ),
    "small120": Setting(
        "Small BNN, 120 clients",
        BNN,
        {"kind": "classes_per_client", "clients": 120, "rows_per_client": 90},
        160,
        10,
        5,
        {"hidden": [20]},
    ),
    "dirichlet27": Setting(
        "Dirichlet(0.1), 27 clients",
        BNN,
        {"kind": "dirichlet", "clients": 27, "rows_per_client": 300, "concentration": 0.1},
        81,
        10,
        3,
    ),
    "digits10": Setting(
        "Digits, 10 clients",
        {"name": "digits"},
        {"kind": "classes_per_client", "clients": 10, "rows_per_client": 0},
        60,
        10,
        3,
    ),
}


# Of a round, relative to BNN with 27 clients.
WEIGHT = {
    "blr30": 0.03,
    "blr120": 0.06,
    "bnn27": 1.0,
    "bnn120": 1.4,
    "small27": 0.3,
    "small120": 0.4,
    "dirichlet27": 1.0,
    "digits10": 0.1,
}


class FigurePlan(NamedTuple):
    """One figure of the paper: its panels' settings and the curves in each."""

    title: str
    panels: tuple[str, ...]
    arms: tuple[str, ...]
    density: str | None = None  # of the paper's sites; None: what the user asked for
    densities: Mapping[str, str] = {}  # panels where another density serves them better
    rounds: tuple[int, ...] = ()  # of each panel; empty: the settings'
    seeds: int | None = None
    every: Mapping[str, int] = {}  # rounds between evaluations; 1 where it is not said
    special: Mapping[str, tuple[str, ...]] = {}  # panels with other curves than the rest
    against: tuple[str, ...] = ("pooled", "fedavg")  # whom the page compares with; the first sets the target

    def arms_of(self, panel: str) -> tuple[str, ...]:
        return self.special.get(panel, self.arms)


FOUR = ("blr30", "blr120", "bnn27", "bnn120")
FIGURES: dict[str, FigurePlan] = {
    "fig1": FigurePlan("KSD and the two baselines", FOUR, ("ksd", "round_robin", "random")),
    "fig2": FigurePlan("HIP and the two baselines", FOUR, ("hip", "round_robin", "random")),
    "fig3": FigurePlan("KSD and HIP", FOUR, ("ksd", "hip")),
    # Parallel DSVGD lives by its KDE, so this figure has the density whose KDE is alive, for both curves.
    "fig4": FigurePlan("HIP and Parallel DSVGD", ("bnn27",), ("hip", "parallel"), "log"),
}
# Beyond the paper: sites that remember, beside the paper's and beside two references; how to draw with innovation; what
# cheaper reports cost; other shards with the defaults.
RULES = ("curvature", "innovation_proportional", "innovation_greedy", "curvature_innovation", "innovation_aged")
BEYOND: dict[str, FigurePlan] = {
    "sites": FigurePlan(
        "The paper's sites, curvature sites, and two references",
        FOUR,
        (
            "paper_hip",
            "curvature",
            "curvature_ksd",
            "curvature_hip",
            "curvature_innovation",
            "curvature_renewing",
            "fedavg",
            "pooled",
        ),
        rounds=(120, 480, 81, 160),
        seeds=3,
        densities={"bnn27": "log", "bnn120": "log"},  # docs/results.md
        every={"bnn120": 4},
        # Reports of 120 networks' clients in every round take several times as long as all the rest.
        special={
            "bnn27": (
                "paper_hip_pool",
                "curvature",
                "curvature_ksd",
                "curvature_hip",
                "curvature_innovation",
                "curvature_innovation_pool",
                "curvature_renewing",
                "fedavg",
                "pooled",
            ),
            "bnn120": (
                "paper_hip_pool",
                "curvature",
                "curvature_oldest",
                "curvature_innovation_pool",
                "curvature_renewing",
                "fedavg",
                "pooled",
            ),
        },
    ),
    "draws": FigurePlan(
        "Whom to draw",
        ("small27", "small120", "bnn27", "bnn120"),
        RULES,
        rounds=(81, 160, 81, 160),
        seeds=5,
        every={"small120": 4, "bnn120": 4},
        special={
            "small27": (
                *RULES,
                "curvature_innovation_pool",
                "innovation_greedy_pool",
                "innovation_aged_pool",
                "curvature_ksd",
                "curvature_hip",
                "curvature_renewing",
            ),
            "small120": ("curvature", *(f"{arm}_pool" for arm in RULES[1:]), "curvature_renewing"),
            "bnn120": ("curvature", *(f"{arm}_pool" for arm in RULES[1:])),
        },
        against=("curvature",),
    ),
    "reports": FigurePlan(
        "Reports of everybody on all rows, and of a pool of 9 on 100 rows",
        ("small27", "bnn27"),
        ("curvature_innovation", "curvature_innovation_pool"),
        rounds=(81, 81),
        seeds=5,
        special={
            "bnn27": (
                "curvature_innovation",
                "curvature_innovation_pool",
                "renewing_everybody",
                "curvature_renewing",
                "renewing_cheap",
            )
        },
        against=("curvature_innovation", "renewing_everybody"),
    ),
    "several": FigurePlan(
        "Several clients a round",
        ("small27",),
        ("curvature", "together3", "together9", "together27"),
        rounds=(81,),
        seeds=3,
        against=("curvature",),
    ),
    "shards": FigurePlan(
        "Other shards, with the defaults",
        ("digits10", "dirichlet27"),
        ("renewing_third", "curvature", "curvature_ksd", "fedavg", "pooled"),
        rounds=(60, 81),
        seeds=3,
    ),
}


def figure_plan(name: str) -> FigurePlan:
    return {**FIGURES, **BEYOND}[name]


@dataclass(frozen=True)
class Job:
    """One run."""

    setting: str
    arm: str
    density: str
    seed: int
    rounds: int
    full: bool
    every: int = 1  # rounds from one evaluation to the next

    @property
    def name(self) -> str:
        size = "-full" if self.full else ""
        density = "" if ARMS[self.arm].tuned else f"-{self.density}"
        return f"{self.setting}{size}-{self.arm}{density}-r{self.rounds}-seed{self.seed}"

    @property
    def weight(self) -> float:
        """About how much work it is, for the time left."""
        return self.rounds * WEIGHT[self.setting] * ARMS[self.arm].weight + 3

    def config(self, threads: int) -> dict[str, Any]:
        """The raw config: the paper's settings, L = L' = 10 and alpha = 1 being defaults of their own."""
        setting = SETTINGS[self.setting]
        name = setting.data["name"] + ("-full" if self.full else "")
        arm = ARMS[self.arm]
        common: dict[str, Any] = {"local_steps": 10, "temperature": 1.0}
        if arm.tuned:
            if step := TUNED.get(self.setting, {}).get(arm.tuned):  # a setting that is not tuned has the defaults
                common["step_size"] = step
            sites = arm.settings.get("sites", {})
        else:
            common["distill_steps"] = 10
            sites = {"kind": "particles", "density": self.density}
        return {
            **arm.settings,
            "seed": self.seed,
            "rounds": self.rounds,
            "data": {"name": name},
            "partition": setting.partition,
            "model": dict(setting.model),
            "sites": sites,
            "algorithm": {**common, **arm.settings.get("algorithm", {})},
            "engine": {"threads": threads},
            "evaluate": {"every": self.every},
            "checkpoint": {"every": 25},
        }


@dataclass(frozen=True)
class Plan:
    """Which figures, and the jobs of each panel's curves."""

    figures: tuple[str, ...]
    curves: dict[tuple[str, str, str], tuple[Job, ...]]  # (figure, setting, arm) -> one job a seed

    def panels(self, figure: str) -> list[str]:
        """The panels of a figure that are part of this plan."""
        return list(dict.fromkeys(panel for name, panel, _ in self.curves if name == figure))

    def arms(self, figure: str, panel: str) -> list[str]:
        """The curves of a panel."""
        return [arm for name, setting, arm in self.curves if (name, setting) == (figure, panel)]

    @property
    def jobs(self) -> list[Job]:
        """Every job once: seeds first, so that an interrupted reproduction has whole comparisons."""
        unique = {job: None for jobs in self.curves.values() for job in jobs}
        return sorted(unique, key=lambda job: (job.seed, list(SETTINGS).index(job.setting), job.arm))


def make_plan(
    figures: Sequence[str],
    *,
    seeds: int | None,
    rounds: int | None,
    density: str,
    full: bool,
    quick: bool,
    settings: Sequence[str] = (),
    arms: Sequence[str] = (),
) -> Plan:
    """The jobs of the named figures; numbers left out are those of the settings, ``settings`` and ``arms`` left out
    are all.
    """
    curves = {}
    for name in figures:
        figure = figure_plan(name)
        for index, panel in enumerate(figure.panels):
            if settings and panel not in settings:
                continue
            setting = SETTINGS[panel]
            usual = figure.seeds or setting.seeds
            count = seeds or (min(2, usual) if quick else usual)
            long = figure.rounds[index] if figure.rounds else setting.rounds
            length = rounds or (setting.quick_rounds if quick else long)
            every = figure.every.get(panel, 1)
            for arm in figure.arms_of(panel):
                if arms and arm not in arms:
                    continue
                used = figure.density or figure.densities.get(panel, density)
                if ARMS[arm].tuned:
                    used = ""  # it has no density, and is the same run whatever the user says
                curves[name, panel, arm] = tuple(Job(panel, arm, used, s, length, full, every) for s in range(count))
    return Plan(tuple(name for name in figures if any(key[0] == name for key in curves)), curves)
