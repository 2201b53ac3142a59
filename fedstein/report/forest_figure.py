"""A forest plot: 90% intervals of every parameter, federated beside pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

LOOKS = {"federated": ("#0072b2", "o", 0.18), "pooled": ("#d55e00", "s", -0.18)}


def draw_forest(names: Sequence[str], intervals: Mapping[str, np.ndarray], title: str, path: Path) -> None:
    """Draw the intervals, one line of the plot for each parameter.

    Args:
        names: The d names of the parameters.
        intervals: d x 3 arrays of lower end, median and upper end, under ``"federated"`` and ``"pooled"``.
        title: What is shown.
        path: The PNG file.
    """
    figure = Figure(figsize=(7.0, 1.2 + 0.24 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(names))[::-1]
    for label, found in intervals.items():
        colour, marker, lift = LOOKS[label]
        low, middle, high = found.T
        axes.hlines(places + lift, low, high, color=colour, linewidth=1.6)
        axes.plot(middle, places + lift, marker, color=colour, markersize=3.5, label=label)
    axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(-0.8, len(names) - 0.2)
    axes.set_xlabel("median and 90% interval")
    axes.set_title(title, fontsize=10)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
