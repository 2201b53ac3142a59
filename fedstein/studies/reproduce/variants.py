"""The curves of the figures: the settings of each variant, and the step sizes that were tuned for it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Variant(NamedTuple):
    """One curve: its settings, and the approximate time of a round (BNN, in seconds)."""

    title: str
    settings: dict[str, dict[str, Any]]
    weight: float
    tuned: str = ""  # the entry of TUNED with its step size; empty: the paper's sites with the step size of the authors


# Step sizes by setting and method: the best on held-out training rows (``fedstein reproduce steps``).
TUNED: dict[str, dict[str, float]] = {
    "blr30": {"curvature": 0.025, "curvature_renewing": 0.0125, "pooled": 0.05, "fedavg": 16.0},
    "blr120": {"curvature": 0.0125, "curvature_renewing": 0.00625, "pooled": 0.0125, "fedavg": 0.5},
    "bnn27": {"curvature": 8e-3, "curvature_renewing": 8e-3, "pooled": 8e-3, "fedavg": 0.5},
    "bnn120": {"curvature": 3e-3, "curvature_renewing": 4e-3, "pooled": 8e-3, "fedavg": 0.5},
    "small27": {"curvature": 8e-3, "curvature_renewing": 8e-3},  # the same as for bnn27
    "small120": {"curvature": 3e-3, "curvature_renewing": 4e-3},  # the same as for bnn120
}
CURVATURE = {"kind": "curvature", "expand": "mean"}  # the figures show rounds, which passes after them do not change
CHEAP_REPORTS = {"pool": 9, "report_rows": 100}  # nine clients report, each on a hundred of its rows
POOL_OF_NINE = ", pool of 9"


def curvature_variant(title: str, weight: float, **selection: Any) -> Variant:
    """Return a variant with curvature sites and a selection scheme."""
    return Variant(title, {"sites": CURVATURE, "selection": selection}, weight, "curvature")


def renewing_variant(title: str, weight: float, **selection: Any) -> Variant:
    """Return a variant with curvature sites that HIP reports renew.

    Each pass visits every client, ordered by its indicator.
    """
    scheme = {"kind": "hip", "draw": "pass", **selection}
    return Variant(title, {"sites": {**CURVATURE, "renew": True}, "selection": scheme}, weight, "curvature_renewing")


def innovation_variants(title: str, draw: str) -> dict[str, Variant]:
    """Return the variants of a drawing rule for innovation: with reports of all clients, and with cheap reports."""
    name = "curvature_innovation" if draw == "pass" else f"innovation_{draw}"
    rule = {"kind": "innovation", "draw": draw}
    return {
        name: curvature_variant(title, 1.4, **rule),
        f"{name}_pool": curvature_variant(title + POOL_OF_NINE, 0.6, **rule, **CHEAP_REPORTS),
    }


def several_per_round(clients: int) -> Variant:
    """Return a variant in which several clients train from the same particles; sites are added, moves are averaged."""
    scheme = {"kind": "round_robin", "order": "reshuffled", "per_round": clients}
    settings: dict[str, dict[str, Any]] = {
        "sites": CURVATURE,
        "selection": scheme,
        "algorithm": {"kind": "parallel_dsvgd"},
    }
    return Variant(f"Round robin, {clients} clients a round", settings, 0.4 * clients + 0.1, "curvature")


VARIANTS: dict[str, Variant] = {
    "ksd": Variant("KSD", {"selection": {"kind": "ksd"}}, 1.6),
    "hip": Variant("HIP", {"selection": {"kind": "hip"}}, 1.5),
    "round_robin": Variant("Round robin", {"selection": {"kind": "round_robin"}}, 0.7),
    "random": Variant("Random", {"selection": {"kind": "random"}}, 0.7),
    **{f"together{m}": several_per_round(m) for m in (3, 9, 27)},
    "parallel": Variant("Parallel DSVGD", {"algorithm": {"kind": "parallel_dsvgd"}}, 14.0),
    "curvature": curvature_variant("Curvature, round robin", 0.5, kind="round_robin", order="reshuffled"),
    "curvature_oldest": curvature_variant("Curvature, oldest first", 0.5, kind="round_robin", order="seeded"),
    "curvature_given": curvature_variant("Curvature, round robin in order", 0.5, kind="round_robin"),
    "curvature_random": curvature_variant("Curvature, random", 0.5, kind="random"),
    "curvature_ksd": curvature_variant("Curvature, KSD", 1.4, kind="ksd"),
    "curvature_hip": Variant(
        "Curvature, HIP",
        {"sites": {**CURVATURE, "renew": False}, "selection": {"kind": "hip"}},
        1.4,
        "curvature",
    ),
    "curvature_hip_pass": Variant(
        "Curvature, HIP in passes",
        {"sites": {**CURVATURE, "renew": False}, "selection": {"kind": "hip", "draw": "pass"}},
        1.4,
        "curvature",
    ),
    "curvature_renewing": renewing_variant("Curvature, HIP renewing" + POOL_OF_NINE, 0.8, pool=9),
    "renewing_everybody": renewing_variant("Curvature, HIP renewing", 1.8),
    "renewing_third": Variant(
        "The default: HIP renewing, a third reports", {"sites": CURVATURE}, 0.8, "curvature_renewing"
    ),
    "renewing_cheap": renewing_variant("Curvature, HIP renewing" + POOL_OF_NINE + ", 100 rows", 0.7, **CHEAP_REPORTS),
    **innovation_variants("Curvature, innovation", "pass"),
    **innovation_variants("Innovation, in proportion", "proportional"),
    **innovation_variants("Innovation, greedy", "greedy"),
    **innovation_variants("Innovation, aged", "aged"),
    "paper_hip": Variant("The paper's sites, HIP", {"selection": {"kind": "hip"}}, 1.5),
    "paper_hip_pool": Variant(
        "The paper's sites, HIP" + POOL_OF_NINE, {"selection": {"kind": "hip", **CHEAP_REPORTS}}, 1.0
    ),
    "fedavg": Variant("FedAvg, all clients", {"algorithm": {"kind": "fedavg"}}, 0.3, "fedavg"),
    "pooled": Variant("Pooled SVGD", {"algorithm": {"kind": "pooled_svgd"}}, 0.3, "pooled"),
}
