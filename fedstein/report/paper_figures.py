"""The figures of the paper: panels of accuracy against rounds, with a mean curve and a band over seeds for each scheme.

If the methods end near the maximum, the figure shows the errors, 1 - accuracy, on a logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from fedstein.report import style
from fedstein.report.load import Run

Panel = tuple[str, Sequence[tuple[str, Sequence[Run]]]]  # title, (name of the curve, its runs)


def draw_panels(panels: Sequence[Panel], errors: bool = False) -> dict[str, bytes]:
    """Draw one figure with two panels in a row, as in the paper. A curve has the same colour in every panel.

    Args:
        panels: For each panel its title and its curves, each a name and the runs of its seeds.
        errors: Whether to show 1 - accuracy on a logarithmic axis.

    Returns:
        The figure by format: png, svg and pdf.
    """
    names = list(dict.fromkeys(name for _, curves in panels for name, _ in curves))
    with style.style():
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        many_curves = len(names) > 4  # a long legend needs the whole width
        fig = style.figure(3.2 * rows + 0.4, width=style.WIDTH if columns == 2 or many_curves else 6.0)
        axes = list(fig.subplots(rows, columns, squeeze=False).flat)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax, (title, curves) in zip(axes, panels, strict=False):
            for name, runs in curves:
                draw_curve(ax, names.index(name), runs, errors)
            count = counted(sorted({len(runs) for _, runs in curves}))
            ax.set(title=f"{title}, {count}", xlabel="Round", ylabel="Error (1 − accuracy)" if errors else "Accuracy")
            style.integer_axis(ax)
            if errors:
                low, high = ax.get_ylim()
                style.log_axis(ax, fine=high < 4 * low)
        several = any(len(runs) > 1 for _, curves in panels for _, runs in curves)
        style.legend(fig, names, band=several)
        return style.as_files(fig)


def counted(seeds: Sequence[int]) -> str:
    """Format the numbers of seeds of the curves of a panel."""
    if len(seeds) == 1:
        return f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}"
    return f"{seeds[0]} to {seeds[-1]} seeds"


def draw_curve(ax: Axes, index: int, runs: Sequence[Run], errors: bool) -> None:
    """Draw the mean over seeds and a band from minimum to maximum."""
    rounds, values = over_seeds(runs)
    values = 1 - values if errors else values
    colour = style.colour(index)
    ax.plot(rounds, values.mean(axis=0), color=colour, linestyle=style.dashes(index), linewidth=1.5)
    if len(runs) > 1:
        ax.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0)


def over_seeds(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return the evaluated rounds that all runs share, and their accuracies, seeds x rounds."""
    each = [{line["round"]: line["accuracy"] for line in run.rounds if line["accuracy"] is not None} for run in runs]
    shared = sorted(set.intersection(*(set(values) for values in each)))
    return np.array(shared), np.array([[values[number] for number in shared] for values in each])
