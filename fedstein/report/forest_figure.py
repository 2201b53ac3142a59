"""A forest plot: 90% intervals of every parameter, federated beside pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

LOOKS = {"federated": ("#0072b2", "o", 0.18), "pooled": ("#d55e00", "s", -0.18)}
LABELS = {"federated": "federated draws", "pooled": "NUTS on the pooled rows"}
LOGARITHM = "log "  # parameters with such names are scales; they have an axis of their own


def draw_forest(names: Sequence[str], intervals: Mapping[str, np.ndarray], title: str, path: Path) -> None:
    """Draw the intervals, one line of the plot for each parameter; logarithms of scales are in a panel of their own.

    Args:
        names: The d names of the parameters.
        intervals: d x 3 arrays of lower end, median and upper end, under ``"federated"`` and ``"pooled"``.
        title: What is shown.
        path: The PNG file.
    """
    scales = np.array([name.startswith(LOGARITHM) for name in names])
    parts = [np.flatnonzero(part) for part in (~scales, scales) if part.any()]
    heights = [len(part) + 0.6 for part in parts]
    figure = Figure(figsize=(7.0, 1.5 + 0.5 * (len(parts) - 1) + 0.22 * len(names)), layout="constrained")
    panels = figure.subplots(len(parts), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, part in zip(panels, parts, strict=True):
        _draw_panel(axes, [names[int(n)] for n in part], {label: found[part] for label, found in intervals.items()})
    panels[-1].set_xlabel("median and 90% interval")
    panels[0].set_title(title, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def _draw_panel(axes: Any, names: Sequence[str], intervals: Mapping[str, np.ndarray]) -> None:
    places = np.arange(len(names))[::-1]
    for label, found in intervals.items():
        colour, marker, lift = LOOKS[label]
        low, middle, high = found.T
        axes.hlines(places + lift, low, high, color=colour, linewidth=1.6)
        axes.plot(middle, places + lift, marker, color=colour, markersize=3.5, label=LABELS[label])
    if not names[0].startswith(LOGARITHM):
        axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(-0.8, len(names) - 0.2)
