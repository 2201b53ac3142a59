"""The figure of accuracy against cost: rounds, trainings of clients, and bytes, one panel for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from fedstein.report import style
from fedstein.report.load import Run
from fedstein.report.paper_figures import counted, over_seeds

# What a run has spent after each of its rounds, by the label of the axis.
BUDGETS: dict[str, Callable[[Run], list[float]]] = {
    "Rounds": lambda run: [float(line["round"]) for line in run.rounds],
    "Trainings of clients": lambda run: list(accumulate(float(len(line["selected"])) for line in run.rounds)),
    "GB, down and up": lambda run: list(
        accumulate((line["bytes_down"] + line["bytes_up"]) / 1e9 for line in run.rounds)
    ),
}


def draw_budgets(curves: Sequence[tuple[str, Sequence[Run]]]) -> dict[str, bytes]:
    """Draw the figure. Each panel ends at the smallest total cost of any curve.

    Args:
        curves: For each curve its name and the runs of its seeds.

    Returns:
        The figure by format: png, svg and pdf.
    """
    with style.style():
        fig = style.figure(3.6)
        axes = fig.subplots(1, len(BUDGETS), sharey=True)
        for ax, (label, spent) in zip(axes, BUDGETS.items(), strict=True):
            ends = []
            for index, (_, runs) in enumerate(curves):
                rounds, values = over_seeds(runs)
                used = np.mean([np.asarray(spent(run))[rounds - 1] for run in runs], axis=0)
                colour = style.colour(index)
                dashes = style.dashes(index)
                ax.plot(
                    used, values.mean(axis=0), color=colour, linestyle=dashes, marker="o", markersize=2, linewidth=1.2
                )
                if len(runs) > 1:
                    ax.fill_between(used, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0)
                ends.append(float(used[-1]))
            ax.set(xlabel=label, xlim=(0, 1.02 * min(ends)))
        axes[0].set(ylabel="Accuracy")
        seeds = counted(sorted({len(runs) for _, runs in curves}))
        axes[0].set_title(f"At equal cost, {seeds}")
        style.legend(fig, [name for name, _ in curves], band=any(len(runs) > 1 for _, runs in curves))
        return style.as_files(fig)
