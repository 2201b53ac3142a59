"""The paper's figures: panels of accuracy against rounds, a mean curve and a band over seeds for each scheme."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from fedstein.report import style
from fedstein.report.load import Run

Panel = tuple[str, Sequence[tuple[str, Sequence[Run]]]]  # title, (name of the curve, its runs)


def draw_panels(panels: Sequence[Panel]) -> dict[str, bytes]:
    """PNG, SVG and PDF of one figure: two panels a row, as in the paper."""
    with style.style():
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        crowded = len(panels[0][1]) > 4  # a long legend needs the whole width
        fig = style.figure(3.2 * rows + 0.4, width=style.WIDTH if columns == 2 or crowded else 6.0)
        for ax, (title, curves) in zip(fig.subplots(rows, columns, squeeze=False).flat, panels, strict=True):
            for index, (_, runs) in enumerate(curves):
                rounds, values = over_seeds(runs)
                colour = style.colour(index)
                ax.plot(rounds, values.mean(axis=0), color=colour, linestyle=style.dashes(index), linewidth=1.5)
                if len(runs) > 1:
                    ax.fill_between(
                        rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0
                    )
            seeds = len(curves[0][1])
            ax.set(title=f"{title}, {seeds} seed{'s' if seeds > 1 else ''}", xlabel="Round", ylabel="Accuracy")
            style.integer_axis(ax)
        several = any(len(runs) > 1 for _, curves in panels for _, runs in curves)
        style.legend(fig, [name for name, _ in panels[0][1]], band=several)
        fig.draw_without_rendering()
        fig.set_layout_engine("none")
        pdf = io.BytesIO()
        fig.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})
        return {"png": style.as_png(fig), "svg": style.as_svg(fig).encode(), "pdf": pdf.getvalue()}


def over_seeds(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """The evaluated rounds that all runs share, and seeds x rounds accuracies."""
    each = [{line["round"]: line["accuracy"] for line in run.rounds if line["accuracy"] is not None} for run in runs]
    shared = sorted(set.intersection(*(set(values) for values in each)))
    return np.array(shared), np.array([[values[number] for number in shared] for values in each])
