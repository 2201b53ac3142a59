"""Draw ``docs/images/overview.png`` from ``experiments/sites/sites.csv``: accuracy against rounds on two tasks.

python tools/make_overview_figure.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
CURVES = {  # method in the CSV: label, colour, line style
    "curvature_renewing": ("Fedstein, curvature sites, one client a round", "#0072b2", "-"),
    "pooled": ("SVGD with all rows in one place", "#444444", "--"),
    "fedavg": ("FedAvg, all clients in every round", "#d55e00", "-."),
    "paper_hip": ("the paper's sites, one client a round", "#009e73", ":"),
}
PANELS = {"blr30": "Covertype, logistic regression, 30 clients", "bnn27": "MNIST, neural network, 27 clients"}
LIMITS = {"blr30": (0.45, 0.78), "bnn27": (0.2, 1.0)}
ALIASES = {"paper_hip_pool": "paper_hip"}


def curves() -> dict[tuple[str, str], dict[int, list[float]]]:
    """Accuracies by (setting, method) and round, one for each seed."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (ROOT / "experiments" / "sites" / "sites.csv").open() as lines:
        for row in csv.DictReader(lines):
            method = ALIASES.get(row["scheme"], row["scheme"])
            found[row["setting"], method][int(row["round"])].append(float(row["accuracy"]))
    return found


def main() -> None:
    found = curves()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    for panel, (setting, title) in zip(axes, PANELS.items(), strict=True):
        for method, (label, colour, style) in CURVES.items():
            rounds = sorted(found[setting, method])
            values = [found[setting, method][number] for number in rounds]
            panel.plot(rounds, [np.mean(v) for v in values], style, color=colour, label=label, linewidth=1.8)
            panel.fill_between(
                rounds, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.15, linewidth=0
            )
        panel.set(title=title, xlabel="round", ylim=LIMITS[setting])
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test accuracy")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(ROOT / "docs" / "images" / "overview.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
