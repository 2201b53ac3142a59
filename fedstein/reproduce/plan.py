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
    tuned: str = ""  # whose step size it takes from TUNED; empty: the paper's sites and the authors' step size


# Step sizes by setting. Pooled SVGD's with 27 clients was chosen with ``fedstein tune``; the others are not tuned yet
# (experiments/sites says so).
TUNED: dict[str, dict[str, float]] = {
    "blr30": {"curvature": 0.05, "pooled": 0.05, "fedavg": 0.5},
    "blr120": {"curvature": 0.05, "pooled": 0.05, "fedavg": 0.5},
    "bnn27": {"curvature": 4e-3, "pooled": 8e-3, "fedavg": 0.5},
    "bnn120": {"curvature": 2e-3, "pooled": 8e-3, "fedavg": 0.5},
}
REMEMBERS = {"kind": "curvature"}
ARMS: dict[str, Arm] = {
    "ksd": Arm("KSD", {"selection": {"kind": "ksd"}}, 1.6),
    "hip": Arm("HIP", {"selection": {"kind": "hip"}}, 1.5),
    "round_robin": Arm("Round robin", {"selection": {"kind": "round_robin"}}, 0.7),
    "random": Arm("Random", {"selection": {"kind": "random"}}, 0.7),
    "parallel": Arm("Parallel DSVGD", {"algorithm": {"kind": "parallel_dsvgd"}}, 14.0),
    "curvature": Arm(
        "Curvature, round robin",
        {"sites": REMEMBERS, "selection": {"kind": "round_robin", "order": "reshuffled"}},
        0.5,
        "curvature",
    ),
    "curvature_ksd": Arm("Curvature, KSD", {"sites": REMEMBERS, "selection": {"kind": "ksd"}}, 1.4, "curvature"),
    "curvature_hip": Arm("Curvature, HIP", {"sites": REMEMBERS, "selection": {"kind": "hip"}}, 1.4, "curvature"),
    "curvature_innovation": Arm(
        "Curvature, innovation",
        {"sites": REMEMBERS, "selection": {"kind": "innovation", "draw": "pass"}},
        1.4,
        "curvature",
    ),
    "paper_hip": Arm("The paper's sites, HIP", {"selection": {"kind": "hip"}}, 1.5),
    "fedavg": Arm("FedAvg, all clients", {"algorithm": {"kind": "fedavg"}}, 0.8, "fedavg"),
    "pooled": Arm("Pooled SVGD", {"algorithm": {"kind": "pooled_svgd"}}, 0.3, "pooled"),
}
WEIGHT = {"blr30": 0.03, "blr120": 0.06, "bnn27": 1.0, "bnn120": 1.4}  # of a round, relative to BNN with 27 clients


class FigurePlan(NamedTuple):
    """One figure of the paper: its panels' settings and the curves in each."""

    title: str
    panels: tuple[str, ...]
    arms: tuple[str, ...]
    density: str | None = None  # None: what the user asked for
    rounds: tuple[int, ...] = ()  # of each panel; empty: the settings'
    seeds: int | None = None


FOUR = ("blr30", "blr120", "bnn27", "bnn120")
FIGURES: dict[str, FigurePlan] = {
    "fig1": FigurePlan("KSD and the two baselines", FOUR, ("ksd", "round_robin", "random")),
    "fig2": FigurePlan("HIP and the two baselines", FOUR, ("hip", "round_robin", "random")),
    "fig3": FigurePlan("KSD and HIP", FOUR, ("ksd", "hip")),
    # Parallel DSVGD lives by its KDE, so this figure has the density whose KDE is alive, for both curves.
    "fig4": FigurePlan("HIP and Parallel DSVGD", ("bnn27",), ("hip", "parallel"), "log"),
}
# Beyond the paper: sites that remember, beside the paper's and beside two references.
BEYOND: dict[str, FigurePlan] = {
    "sites": FigurePlan(
        "The paper's sites, curvature sites, and two references",
        FOUR,
        ("paper_hip", "curvature", "curvature_ksd", "curvature_hip", "curvature_innovation", "fedavg", "pooled"),
        rounds=(120, 480, 81, 160),
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
            common["step_size"] = TUNED[self.setting][arm.tuned]
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
            "sites": sites,
            "algorithm": {**common, **arm.settings.get("algorithm", {})},
            "engine": {"threads": threads},
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
) -> Plan:
    """The jobs of the named figures; numbers left out are those of the settings, ``settings`` left out are all."""
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
            for arm in figure.arms:
                used = figure.density or density
                curves[name, panel, arm] = tuple(Job(panel, arm, used, s, length, full) for s in range(count))
    return Plan(tuple(name for name in figures if any(key[0] == name for key in curves)), curves)
