"""The settings of the paper (section IV-A), some settings beyond them, and the runs behind each figure.

A run that two figures share is one job.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedstein.studies.reproduce.variants import TUNED, VARIANTS

BLR, BNN = {"name": "covertype"}, {"name": "mnist"}


class Setting(NamedTuple):
    """The task of one panel: the data, the clients, and the number of rounds and seeds."""

    title: str
    data: dict[str, Any]
    partition: dict[str, Any]
    rounds: int
    quick_rounds: int
    seeds: int
    model: Mapping[str, Any] = {}  # if it differs from the default of the dataset


SMALL = {"hidden": [20]}


def three_digits(clients: int, rows: int) -> dict[str, Any]:
    """Return the partition of the paper's MNIST clients, which hold three digits each."""
    return {"kind": "classes_per_client", "clients": clients, "rows_per_client": rows}


SETTINGS: dict[str, Setting] = {
    "blr30": Setting(
        "BLR, 30 clients", BLR, {"kind": "label_ratio", "clients": 30, "rows_per_client": 500}, 150, 40, 5
    ),
    "blr120": Setting(
        "BLR, 120 clients", BLR, {"kind": "label_ratio", "clients": 120, "rows_per_client": 300}, 150, 40, 5
    ),
    "bnn27": Setting("BNN, 27 clients", BNN, three_digits(27, 300), 100, 10, 3),
    "bnn120": Setting("BNN, 120 clients", BNN, three_digits(120, 90), 100, 10, 1),
    "small27": Setting("Small BNN, 27 clients", BNN, three_digits(27, 300), 81, 10, 5, SMALL),
    "small120": Setting("Small BNN, 120 clients", BNN, three_digits(120, 90), 160, 10, 5, SMALL),
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


# The cost of a round relative to that of the BNN with 27 clients.
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
    """One figure: the settings of its panels and the curves in each."""

    title: str
    panels: tuple[str, ...]
    variants: tuple[str, ...]
    density: str | None = None  # of the paper's sites; None: the value of --density
    densities: Mapping[str, str] = {}  # panels for which another density is better
    rounds: tuple[int, ...] = ()  # of each panel; empty: those of the settings
    seeds: int | None = None
    every: Mapping[str, int] = {}  # rounds between evaluations; 1 by default
    special: Mapping[str, tuple[str, ...]] = {}  # panels whose curves differ from ``variants``
    against: tuple[str, ...] = ("pooled", "fedavg")  # the methods to compare with; the first one sets the target

    def variants_of(self, panel: str) -> tuple[str, ...]:
        """Return the curves of a panel."""
        return self.special.get(panel, self.variants)


FOUR = ("blr30", "blr120", "bnn27", "bnn120")
FIGURES: dict[str, FigurePlan] = {
    "fig1": FigurePlan("KSD and the two baselines", FOUR, ("ksd", "round_robin", "random")),
    "fig2": FigurePlan("HIP and the two baselines", FOUR, ("hip", "round_robin", "random")),
    "fig3": FigurePlan("KSD and HIP", FOUR, ("ksd", "hip")),
    # Parallel DSVGD needs a KDE that does not vanish in many dimensions, so both curves have the log density.
    "fig4": FigurePlan("HIP and Parallel DSVGD", ("bnn27",), ("hip", "parallel"), "log"),
}
# Beyond the paper: curvature sites compared with the paper's sites and two references; the drawing rules of innovation;
# the effect of cheaper reports; other datasets and partitions with the defaults.
RULES = ("curvature", "innovation_proportional", "innovation_greedy", "curvature_innovation", "innovation_aged")
# With curvature sites: the paper's four schemes, and six that combine importance with coverage or have one of them.
PAPERS = ("curvature_given", "curvature_random", "curvature_ksd", "curvature_hip")
COMBINED = (
    "curvature",
    "curvature_hip_pass",
    "curvature_innovation",
    "innovation_greedy",
    "innovation_aged",
    "innovation_proportional",
)
BEYOND: dict[str, FigurePlan] = {
    "selection": FigurePlan(
        "Selection with curvature sites, in each order of clients",
        ("blr30", "blr120"),
        (*PAPERS, *COMBINED),
        rounds=(150, 150),
        seeds=5,
        against=("curvature",),
    ),
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
        # Reports of 120 clients with networks in every round would take several times as long as everything else.
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
            "small120": ("curvature", *(f"{variant}_pool" for variant in RULES[1:]), "curvature_renewing"),
            "bnn120": ("curvature", *(f"{variant}_pool" for variant in RULES[1:])),
        },
        against=("curvature",),
    ),
    "reports": FigurePlan(
        "Reports of all clients on all rows, and of a pool of 9 on 100 rows",
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
    """Return the plan of a figure of the paper or beyond it."""
    return {**FIGURES, **BEYOND}[name]


@dataclass(frozen=True)
class Job:
    """One run."""

    setting: str
    variant: str
    density: str
    seed: int
    rounds: int
    full: bool
    every: int = 1  # rounds between evaluations
    order: str = "dealt"  # how clients are numbered: partition.order

    @property
    def name(self) -> str:
        """The name of the run folder."""
        size = "-full" if self.full else ""
        order = "" if self.order == "dealt" else f"-{self.order}"
        density = "" if VARIANTS[self.variant].tuned else f"-{self.density}"
        return f"{self.setting}{size}{order}-{self.variant}{density}-r{self.rounds}-seed{self.seed}"

    @property
    def weight(self) -> float:
        """The relative amount of work, to estimate the remaining time."""
        return self.rounds * WEIGHT[self.setting] * VARIANTS[self.variant].weight + 3

    def config(self, threads: int) -> dict[str, Any]:
        """Return the config before defaults: the paper's settings, with L = L' = 10 and alpha = 1.

        Args:
            threads: Threads of the computation.

        Returns:
            The config as nested dicts.
        """
        setting = SETTINGS[self.setting]
        name = setting.data["name"] + ("-full" if self.full else "")
        variant = VARIANTS[self.variant]
        common: dict[str, Any] = {"local_steps": 10, "temperature": 1.0}
        if variant.tuned:
            if step := TUNED.get(self.setting, {}).get(
                variant.tuned
            ):  # a setting without a tuned step size has the default
                common["step_size"] = step
            sites = variant.settings.get("sites", {})
        else:
            common["distill_steps"] = 10
            sites = {"kind": "particles", "density": self.density}
        return {
            **variant.settings,
            "seed": self.seed,
            "rounds": self.rounds,
            "data": {"name": name},
            "partition": {**setting.partition, "order": self.order},
            "model": dict(setting.model),
            "sites": sites,
            "algorithm": {**common, **variant.settings.get("algorithm", {})},
            "engine": {"threads": threads},
            "evaluate": {"every": self.every},
            "checkpoint": {"every": 25},
        }


@dataclass(frozen=True)
class Plan:
    """The figures, and the jobs of the curves of each panel."""

    figures: tuple[str, ...]
    curves: dict[tuple[str, str, str], tuple[Job, ...]]  # (figure, setting, variant) -> one job for each seed

    def panels(self, figure: str) -> list[str]:
        """Return the panels of a figure in this plan.

        Args:
            figure: The name of the figure.

        Returns:
            The names of its panels.
        """
        return list(dict.fromkeys(panel for name, panel, _ in self.curves if name == figure))

    def variants(self, figure: str, panel: str) -> list[str]:
        """Return the curves of a panel in this plan.

        Args:
            figure: The name of the figure.
            panel: The name of the panel.

        Returns:
            The names of its curves.
        """
        return [variant for name, setting, variant in self.curves if (name, setting) == (figure, panel)]

    def drawn(self, jobs: Container[Job]) -> Plan:
        """Return the plan with those of its jobs only that are among ``jobs``, without curves that have none.

        Args:
            jobs: The jobs to keep.

        Returns:
            The smaller plan.
        """
        kept = {key: tuple(job for job in own if job in jobs) for key, own in self.curves.items()}
        curves = {key: own for key, own in kept.items() if own}
        return Plan(tuple(name for name in self.figures if any(key[0] == name for key in curves)), curves)

    @property
    def jobs(self) -> list[Job]:
        """Every job once, sorted by seed, so that an interrupted reproduction has complete comparisons."""
        unique = {job: None for jobs in self.curves.values() for job in jobs}
        return sorted(unique, key=lambda job: (job.seed, list(SETTINGS).index(job.setting), job.variant))


def make_plan(
    figures: Sequence[str],
    *,
    seeds: int | None,
    rounds: int | None,
    density: str,
    full: bool,
    quick: bool,
    settings: Sequence[str] = (),
    variants: Sequence[str] = (),
    order: str = "dealt",
) -> Plan:
    """Plan the runs of figures.

    Args:
        figures: The names of the figures.
        seeds: The number of seeds, or None for that of the figure or setting.
        rounds: The number of rounds, or None for that of the figure or setting.
        density: The KDE density of the paper's sites.
        full: Whether to use the full datasets.
        quick: Whether to use few rounds and seeds.
        settings: The panels to plan; empty for all.
        variants: The curves to plan; empty for all.
        order: How clients are numbered: ``dealt``, ``blocks`` or ``shuffled``.

    Returns:
        The plan.
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
            for variant in figure.variants_of(panel):
                if variants and variant not in variants:
                    continue
                used = figure.density or figure.densities.get(panel, density)
                if VARIANTS[variant].tuned:
                    used = ""  # it has no density, so the option does not change the run
                curves[name, panel, variant] = tuple(
                    Job(panel, variant, used, s, length, full, every, order) for s in range(count)
                )
    return Plan(tuple(name for name in figures if any(key[0] == name for key in curves)), curves)
