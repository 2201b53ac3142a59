"""The figures of a report. Each is a function from a summary to a figure, or to None if there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedstein.report import style
from fedstein.report.client_evaluation import clients
from fedstein.report.groups import Group
from fedstein.report.nuts_distance import distances
from fedstein.report.summary import Summary
from fedstein.report.view_figures import VIEW_FIGURES
from fedstein.report.views.calibration import sparse

NAMES = {"accuracy": "Accuracy", "rmse": "RMSE", "nll": "NLL (nats)", "ece": "ECE"}
UNIFORM = (0, (4, 3))
FEW_POINTS = 12  # a curve with at most this many points shows markers, so that a single point is visible
# What a round costs, and the units that the axis of the sums may have.
COSTS: dict[str, tuple[Callable[[Any], float], tuple[tuple[float, str], ...]]] = {
    "bytes": (
        lambda line: (line["bytes_down"] or 0) + (line["bytes_up"] or 0),
        tuple((size, f"{unit} sent and received") for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))),
    ),
    "gradients": (
        lambda line: sum(value or 0 for value in (line.get("row_gradients") or {}).values()),
        ((1e9, "Billion row-gradients"), (1e6, "Million row-gradients"), (1e3, "Thousand row-gradients")),
    ),
    "seconds": (
        lambda line: line["seconds"] or 0.0,
        ((3600.0, "Hours in rounds"), (60.0, "Minutes in rounds"), (1.0, "Seconds in rounds")),
    ),
}


@dataclass(frozen=True)
class RenderedFigure:
    """One figure as PNG, as SVG and as PDF, in the size of a page of a paper."""

    name: str
    png: bytes
    svg: str
    pdf: bytes


NAMED = 40  # clients up to which the picture of the selection names each
FLAT = 6  # clients up to which their names fit beside each other
UPRIGHT = 1.2  # inches that upright names take


def draw(summary: Summary) -> list[RenderedFigure]:
    """Draw every figure for which the runs have data.

    Args:
        summary: The groups of runs.

    Returns:
        The figures in the order of ``FIGURES``.
    """
    return _rendered(FIGURES, summary)


def draw_run(run: dict[str, Any]) -> list[RenderedFigure]:
    """Draw the figures of a single run.

    Args:
        run: The entry of the run in the views.

    Returns:
        The figures in the order of ``VIEW_FIGURES``.
    """
    return _rendered(VIEW_FIGURES, run)


def _rendered(makers: Mapping[str, Callable[[Any], Figure | None]], source: Any) -> list[RenderedFigure]:
    rendered = []
    with style.style(style.ON_PAPER):
        for name, make in makers.items():
            fig = make(source)
            if fig is not None:
                made = style.as_files(fig)
                rendered.append(RenderedFigure(name, made["png"], made["svg"].decode(), made["pdf"]))
    return rendered


def curves(summary: Summary) -> Figure | None:
    """Draw the leading metric, NLL and ECE by round: the mean over seeds, and a band from minimum to maximum.

    Args:
        summary: The groups of runs.

    Returns:
        The figure, or None if no round was evaluated.
    """
    shown = [m for m in (summary.metric, "nll", "ece") if m in summary.metrics]
    if not shown:
        return None
    fig = style.figure(3.4)
    axes = fig.subplots(1, len(shown), squeeze=False)[0]
    for ax, metric in zip(axes, shown, strict=True):
        drawn = []
        for i, summed in enumerate(summary.groups):
            rounds, values = _over_seeds(summed.group, metric)
            _line_and_band(ax, i, rounds, values)
            drawn.append(values[np.isfinite(values)])
        wide = metric != "accuracy" and _wide(np.concatenate(drawn))
        if wide:
            style.log_axis(ax)
        ax.set(xlabel="Round", title=NAMES[metric] + (", log scale" if wide else ""))
        style.integer_axis(ax)
    style.legend(fig, [s.group.label for s in summary.groups], band=any(len(s.group.runs) > 1 for s in summary.groups))
    return fig


def cost(summary: Summary) -> Figure | None:
    """Draw the leading metric against what the rounds have cost so far: bytes, row-gradients and seconds.

    Args:
        summary: The groups of runs.

    Returns:
        The figure, or None if no round was evaluated or nothing was spent.
    """
    if summary.metric not in summary.metrics:
        return None
    curve = [_over_seeds(summed.group, summary.metric) for summed in summary.groups]
    panels = []
    for spent, units in COSTS.values():
        so_far = [_until(s.group, rounds, spent) for s, (rounds, _) in zip(summary.groups, curve, strict=True)]
        totals = [x[-1] for x in so_far if len(x)]
        if totals and max(totals) > 0:
            panels.append((so_far, totals, units))
    if not panels:
        return None
    fig = style.figure(3.4)
    axes = fig.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (so_far, totals, units) in zip(axes, panels, strict=True):
        unit, name = next(((u, n) for u, n in units if max(totals) >= 2 * u), units[-1])
        for i, (x, (_, values)) in enumerate(zip(so_far, curve, strict=True)):
            _line_and_band(ax, i, x / unit, values)
        wide = min(totals) > 0 and max(totals) > 6 * min(totals)
        if wide:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
        else:
            ax.set_xlim(left=0)  # the first round may take longer than the others together
        ax.set_xlabel(name + (", log scale" if wide else ""))
    axes[0].set_title(NAMES[summary.metric])
    style.legend(fig, [s.group.label for s in summary.groups], band=any(len(s.group.runs) > 1 for s in summary.groups))
    return fig


def reliability(summary: Summary) -> Figure | None:
    """Draw accuracy against confidence, and the share of rows in each bin, over all seeds: one panel for each group.

    Args:
        summary: The groups of runs.

    Returns:
        The figure, or None if no run has reliability bins.
    """
    pooled = [(i, s.group.label, _pooled_bins(s.group)) for i, s in enumerate(summary.groups)]
    panels = [(i, label, bins) for i, label, bins in pooled if bins]
    if not panels:
        return None
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    fig = style.figure(4.3 * rows, width=style.WIDTH if columns > 2 else 4.5 * columns)
    title_size = "large" if max(len(label) for _, label, _ in panels) < 26 else "small"
    grid = fig.add_gridspec(2 * rows, columns, height_ratios=[3.6, 1.0] * rows)
    for place, (i, label, bins) in enumerate(panels):
        row, column = divmod(place, columns)
        diagram = fig.add_subplot(grid[2 * row, column])
        strip = fig.add_subplot(grid[2 * row + 1, column], sharex=diagram)
        _reliability_panel(diagram, strip, bins, style.colour(i))
        diagram.set_title(label, fontsize=title_size)
        if column == 0:
            diagram.set_ylabel("Accuracy")
            strip.set_ylabel("Share of\nrows (%)")
    return fig


def selection(summary: Summary) -> Figure | None:
    """Draw how often each client trained: the mean over seeds, the range, and the value of a uniform selection.

    Args:
        summary: The groups of runs.

    Returns:
        The figure, or None if no client trained.
    """
    shown = [(i, s.group) for i, s in enumerate(summary.groups) if any(sum(r.selected_counts) for r in s.group.runs)]
    if not shown:
        return None
    fig = style.figure(1.2 + sum(1.5 + (UPRIGHT if _upright(group) else 0) for _, group in shown))
    axes = fig.subplots(len(shown), 1, sharey=True, squeeze=False)[:, 0]
    for ax, (i, group) in zip(axes, shown, strict=True):
        clients = max(len(run.selected_counts) for run in group.runs)
        counts = np.zeros((len(group.runs), clients))
        for row, run in zip(counts, group.runs, strict=True):
            row[: len(run.selected_counts)] = run.selected_counts
        mean = counts.mean(axis=0)
        ax.bar(np.arange(clients), mean, width=0.75, color=style.colour(i))
        if len(group.runs) > 1:
            ax.vlines(np.arange(clients), counts.min(axis=0), counts.max(axis=0), color=style.MUTED, linewidth=1.1)
        barred = group.config.get("selection.barred") or ()
        uniform = np.mean([value for client, value in enumerate(mean) if client not in barred])
        ax.axhline(uniform, color=style.INK, linestyle=UNIFORM, linewidth=1.1)
        ax.set_title(group.label)
        ax.set_xlim(-0.8, clients - 0.2)
        ax.grid(visible=False, axis="x")
        style.integer_axis(ax)
        names = group.runs[0].client_names
        if names and clients <= NAMED:
            labels = [style.shortened(names.get(client, str(client))) for client in range(clients)]
            ax.set_xticks(np.arange(clients), labels, rotation=90 if _upright(group) else 0)
    axes[-1].set_xlabel("Client")
    handles = [Line2D([], [], color=style.INK, linestyle=UNIFORM, linewidth=1.1)]
    entries = ["uniform choice"]
    if any(len(group.runs) > 1 for _, group in shown):
        handles.append(Line2D([], [], color=style.MUTED, marker="|", markersize=11, linestyle=""))
        entries.append("range over seeds")
    fig.legend(handles, entries, loc="outside upper right", ncols=2, handlelength=2.4)
    fig.supylabel("Times selected", fontsize="medium")
    return fig


def _upright(group: Group) -> bool:
    """Whether the names of the clients stand upright below the bars."""
    return bool(group.runs[0].client_names) and FLAT < max(len(run.selected_counts) for run in group.runs) <= NAMED


FIGURES: dict[str, Callable[[Summary], Figure | None]] = {
    "curves": curves,
    "cost": cost,
    "reliability": reliability,
    "selection": selection,
    "distances": distances,
    "clients": clients,
}


def _over_seeds(group: Group, metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rounds in which any seed has the metric, and its values (seeds x rounds, NaN if a seed has none)."""
    by_seed = [{line["round"]: line[metric] for line in r.rounds if line.get(metric) is not None} for r in group.runs]
    rounds = sorted(set().union(*by_seed))
    values = np.array([[seed.get(r, np.nan) for r in rounds] for seed in by_seed], dtype=np.float64)
    return np.array(rounds, dtype=np.int64), values


def _until(group: Group, rounds: NDArray[np.int64], spent: Callable[[Any], float]) -> NDArray[np.float64]:
    """Return the cumulative cost at each round, averaged over the seeds that reached it."""
    sums = np.full((len(group.runs), len(rounds)), np.nan)
    for row, run in zip(sums, group.runs, strict=True):
        numbers = np.array([line["round"] for line in run.rounds])
        total = np.cumsum([spent(line) for line in run.rounds])
        reached = rounds <= numbers[-1]
        row[reached] = total[np.searchsorted(numbers, rounds[reached])]
    return np.nanmean(sums, axis=0) if len(rounds) else np.zeros(0)


def _line_and_band(ax: Axes, index: int, x: NDArray[Any], values: NDArray[np.float64]) -> None:
    if not len(x):
        return
    colour, marker = style.colour(index), "o" if len(x) <= FEW_POINTS else ""
    mean = np.nanmean(values, axis=0)
    ax.plot(x, mean, color=colour, linestyle=style.dashes(index), marker=marker, markersize=4)
    if len(values) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)


def _wide(values: NDArray[np.float64]) -> bool:
    """Tell whether the values need a log axis: a bad start can be a hundred times worse than the end of a curve."""
    return bool(len(values) and values.min() > 0 and values.max() > 10 * values.min())


def _pooled_bins(group: Group) -> list[dict[str, Any]]:
    """Combine the bins of all seeds, weighted by their numbers of rows."""
    tables = [run.reliability for run in group.runs if run.reliability]
    pooled = []
    for bins in zip(*tables, strict=True):
        count = sum(b["count"] for b in bins)
        filled = [b for b in bins if b["count"]]
        means = {
            key: sum(b["count"] * b[key] for b in filled) / count if count else None
            for key in ("confidence", "accuracy")
        }
        pooled.append({"low": bins[0]["low"], "high": bins[0]["high"], "count": count, **means})
    return pooled


def _reliability_panel(diagram: Axes, strip: Axes, bins: list[dict[str, Any]], colour: str) -> None:
    filled = [b for b in bins if b["count"]]
    total = sum(b["count"] for b in filled)
    middle = [(b["low"] + b["high"]) / 2 for b in filled]
    width = bins[0]["high"] - bins[0]["low"]
    diagram.plot([0, 1], [0, 1], color=style.MUTED, linestyle=UNIFORM, linewidth=1.1)
    few = [sparse(b["count"], total) for b in filled]
    for bars, heights, strong in (
        (diagram, [b["accuracy"] for b in filled], 0.28),
        (strip, [100 * b["count"] / total for b in filled], 1.0),
    ):
        drawn = bars.bar(middle, heights, width=0.92 * width, color=colour)
        for bar, faded in zip(drawn, few, strict=True):
            bar.set_alpha(strong * (0.3 if faded else 1.0))
    points = [b["confidence"] for b in filled], [b["accuracy"] for b in filled]
    diagram.plot(*points, color=colour, linewidth=1.4, alpha=0.5)
    solid = [(b["confidence"], b["accuracy"]) for b, faded in zip(filled, few, strict=True) if not faded]
    hollow = [(b["confidence"], b["accuracy"]) for b, faded in zip(filled, few, strict=True) if faded]
    for dots, face in ((solid, colour), (hollow, style.PAPER)):
        if dots:
            diagram.plot(*zip(*dots, strict=True), "o", markersize=4.5, color=colour, markerfacecolor=face)
    ece = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in filled) / total
    diagram.text(0.04, 0.94, f"ECE {ece:.3f}", transform=diagram.transAxes, va="top")
    diagram.set(xlim=(0, 1), ylim=(0, 1))
    diagram.tick_params(labelbottom=False)
    diagram.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    strip.yaxis.set_major_locator(MaxNLocator(nbins=2, steps=[1, 2, 5, 10]))
    strip.set_xlabel("Confidence")
