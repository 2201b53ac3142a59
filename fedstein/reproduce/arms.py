"""The curves of the figures: what each of them is set to, and the step sizes that were tuned for it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Arm(NamedTuple):
    """One curve: what differs between the curves of a panel, and about how long a round takes (BNN, seconds)."""

    title: str
    settings: dict[str, dict[str, Any]]
    weight: float
    tuned: str = ""  # whose step size it takes from TUNED; empty: the paper's sites and the authors' step size


# Step sizes by setting and method: the best on held-out training rows (``fedstein reproduce steps``).
TUNED: dict[str, dict[str, float]] = {
    "blr30": {"curvature": 0.025, "curvature_renewing": 0.0125, "pooled": 0.05, "fedavg": 16.0},
    "blr120": {"curvature": 0.0125, "curvature_renewing": 0.00625, "pooled": 0.0125, "fedavg": 0.5},
    "bnn27": {"curvature": 8e-3, "curvature_renewing": 8e-3, "pooled": 8e-3, "fedavg": 0.5},
    "bnn120": {"curvature": 3e-3, "curvature_renewing": 4e-3, "pooled": 8e-3, "fedavg": 0.5},
    "small27": {"curvature": 8e-3, "curvature_renewing": 8e-3},  # those of bnn27
    "small120": {"curvature": 3e-3, "curvature_renewing": 4e-3},  # those of bnn120
}
REMEMBERS = {"kind": "curvature"}
CHEAP = {"pool": 9, "report_rows": 100}  # reports of nine clients, on a hundred of their rows
CHEAPER = ", pool of 9"


def remembering(title: str, weight: float, **selection: Any) -> Arm:
    """Curvature sites with a scheme."""
    return Arm(title, {"sites": REMEMBERS, "selection": selection}, weight, "curvature")


def renewing(title: str, weight: float, **selection: Any) -> Arm:
    """Curvature sites that HIP's reports renew; every client in turn, in the order of its indicator."""
    scheme = {"kind": "hip", "draw": "pass", **selection}
    return Arm(title, {"sites": {**REMEMBERS, "renew": True}, "selection": scheme}, weight, "curvature_renewing")


def innovation(title: str, draw: str) -> dict[str, Arm]:
    """A drawing rule, with everybody's reports and with cheap ones."""
    name = "curvature_innovation" if draw == "pass" else f"innovation_{draw}"
    rule = {"kind": "innovation", "draw": draw}
    return {
        name: remembering(title, 1.4, **rule),
        f"{name}_pool": remembering(title + CHEAPER, 0.6, **rule, **CHEAP),
    }


def together(clients: int) -> Arm:
    """Several clients train in a round, from the same particles; their sites add, their moves are averaged."""
    scheme = {"kind": "round_robin", "order": "reshuffled", "per_round": clients}
    settings: dict[str, dict[str, Any]] = {
        "sites": REMEMBERS,
        "selection": scheme,
        "algorithm": {"kind": "parallel_dsvgd"},
    }
    return Arm(f"Round robin, {clients} clients a round", settings, 0.4 * clients + 0.1, "curvature")


ARMS: dict[str, Arm] = {
    "ksd": Arm("KSD", {"selection": {"kind": "ksd"}}, 1.6),
    "hip": Arm("HIP", {"selection": {"kind": "hip"}}, 1.5),
    "round_robin": Arm("Round robin", {"selection": {"kind": "round_robin"}}, 0.7),
    "random": Arm("Random", {"selection": {"kind": "random"}}, 0.7),
    **{f"together{m}": together(m) for m in (3, 9, 27)},
    "parallel": Arm("Parallel DSVGD", {"algorithm": {"kind": "parallel_dsvgd"}}, 14.0),
    "curvature": remembering("Curvature, round robin", 0.5, kind="round_robin", order="reshuffled"),
    "curvature_oldest": remembering("Curvature, oldest first", 0.5, kind="round_robin", order="seeded"),
    "curvature_ksd": remembering("Curvature, KSD", 1.4, kind="ksd"),
    "curvature_hip": Arm(
        "Curvature, HIP",
        {"sites": {**REMEMBERS, "renew": False}, "selection": {"kind": "hip"}},
        1.4,
        "curvature",
    ),
    "curvature_renewing": renewing("Curvature, HIP renewing" + CHEAPER, 0.8, pool=9),
    "renewing_everybody": renewing("Curvature, HIP renewing", 1.8),
    "renewing_third": Arm(
        "The default: HIP renewing, a third reports", {"sites": REMEMBERS}, 0.8, "curvature_renewing"
    ),
    "renewing_cheap": renewing("Curvature, HIP renewing" + CHEAPER + ", 100 rows", 0.7, **CHEAP),
    **innovation("Curvature, innovation", "pass"),
    **innovation("Innovation, in proportion", "proportional"),
    **innovation("Innovation, greedy", "greedy"),
    **innovation("Innovation, aged", "aged"),
    "paper_hip": Arm("The paper's sites, HIP", {"selection": {"kind": "hip"}}, 1.5),
    "paper_hip_pool": Arm("The paper's sites, HIP" + CHEAPER, {"selection": {"kind": "hip", **CHEAP}}, 1.0),
    "fedavg": Arm("FedAvg, all clients", {"algorithm": {"kind": "fedavg"}}, 0.3, "fedavg"),
    "pooled": Arm("Pooled SVGD", {"algorithm": {"kind": "pooled_svgd"}}, 0.3, "pooled"),
}
