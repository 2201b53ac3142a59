"""Rank histograms of simulation-based calibration: one panel for each parameter, with the band of uniform ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fedstein.report import style

PER_ROW = 6  # more histograms side by side cannot be read


class RankHistogram(NamedTuple):
    """The counts of one parameter's ranks.

    Attributes:
        name: The name of the parameter.
        counts: The number of simulations in each bin.
        band: Where a count lies in 99 of 100 cases if ranks are uniform.
        note: A short text for the panel.
    """

    name: str
    counts: np.ndarray
    band: tuple[float, float]
    note: str


def rank_figure(models: Mapping[str, Sequence[RankHistogram]]) -> Figure:
    """Draw a row of histograms for each model, or several rows if it has more than PER_ROW parameters.

    Args:
        models: The histograms by model, in the order of the rows.

    Returns:
        The figure.
    """
    lines = [
        (number, name if start == 0 else "", panels[start : start + PER_ROW])
        for number, (name, panels) in enumerate(models.items())
        for start in range(0, len(panels), PER_ROW)
    ]
    columns = max(len(panels) for _, _, panels in lines)
    fig = style.figure(0.5 + 1.6 * len(lines))
    grid = fig.subplots(len(lines), columns, squeeze=False, sharex=True)
    for line, (number, model, panels) in zip(grid, lines, strict=True):
        for column, ax in enumerate(line):
            if column >= len(panels):
                ax.set_visible(False)
                continue
            panel = panels[column]
            bins = len(panel.counts)
            ax.axhspan(*panel.band, color=style.MUTED, alpha=0.3, linewidth=0, zorder=0)
            ax.axhline(panel.counts.sum() / bins, color=style.INK, linewidth=0.8, zorder=1)
            centres = (np.arange(bins) + 0.5) / bins
            ax.bar(centres, panel.counts, 0.92 / bins, color=style.colour(number), zorder=2, alpha=0.8)
            ax.set_title(f"{panel.name}\n{panel.note}", fontsize=8)
            ax.set_ylim(0, 1.25 * max(panel.band[1], panel.counts.max()))
            ax.set_xticks([0, 0.5, 1])
            ax.grid(visible=False)
            ax.tick_params(labelsize=7)
            if column == 0:
                ax.set_ylabel(model)
    fig.supxlabel("Rank of the true value among the draws, 0 to 1", fontsize=9)
    return fig
