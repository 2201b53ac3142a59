"""The distances of the particles from NUTS, which ``fedstein reference`` wrote: a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from rich import box
from rich.markup import escape
from rich.table import Table

from fedstein.report import style
from fedstein.report.groups import ABSENT
from fedstein.report.load import MEASURES
from fedstein.report.summary import GroupSummary, Summary
from fedstein.report.tables import Column, Row

HEADINGS = {
    "offset_median": "Mean offset, median",
    "offset_max": "greatest",
    "offset_log_xi": "log ξ",
    "sd_ratio_min": "sd ratio, least",
    "sd_ratio_median": "median",
    "sd_ratio_max": "greatest",
    "sd_ratio_log_xi": "log ξ",
    "ksd": "KSD",
}
NARROW = ("offset_median", "offset_max", "sd_ratio_min", "sd_ratio_median", "sd_ratio_max", "ksd")
BAND = 0.5  # posterior standard deviations
WIDE = 5.0  # with a larger offset the axis is logarithmic


def distance_columns(rows: Sequence[Row]) -> list[Column]:
    """Build the table of the distances.

    Args:
        rows: The rows of the report.

    Returns:
        One row for each group with a reference, then the distances of as many NUTS draws. It is empty without
        references.
    """
    groups = _measured(rows)
    if not groups:
        return []
    scales = _scales(rows)
    columns = [
        Column("Group", [row["group"] for row in groups] + [f"{count} NUTS draws" for count in scales], number=False),
        Column("N", [str(row["nuts_particles"] or ABSENT) for row in groups] + [str(count) for count in scales]),
    ]
    for name in MEASURES:
        cells = [_plus_minus(row[f"nuts_{name}"], row[f"nuts_{name}_sd_between_seeds"]) for row in groups]
        columns.append(Column(HEADINGS[name], cells + [short(scale[name]) for scale in scales.values()]))
    return columns


def distance_table(rows: Sequence[Row]) -> Table | None:
    """Build the table for the terminal: means only, narrow enough for 80 columns.

    Args:
        rows: The rows of the report.

    Returns:
        The table, or None if no run has a reference.
    """
    groups = _measured(rows)
    if not groups:
        return None
    scales = _scales(rows)
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    result.caption, result.caption_justify = "Offsets in posterior sd, ratios of sds, over the weights", "left"
    result.add_column("Distance\nfrom NUTS", overflow="fold")
    for heading in ("Offset,\nmedian", "\ngreatest", "sd ratio,\nleast", "\nmedian", "\ngreatest", "\nKSD"):
        result.add_column(heading, justify="right", no_wrap=True)
    for row in groups:
        result.add_row(escape(row["group"]), *(short(row[f"nuts_{name}"]) for name in NARROW))
    for count, scale in scales.items():
        result.add_row(f"{count} NUTS draws", *(short(scale[name]) for name in NARROW))
    return result


def distances(summary: Summary) -> Figure | None:
    """Draw one dot for each weight and seed: ratios of standard deviations on a log axis, and mean offsets.

    Args:
        summary: The groups.

    Returns:
        The figure, or None if no run has a reference.
    """
    shown = [(i, summed) for i, summed in enumerate(summary.groups) if summed.measured]
    if not shown:
        return None
    fig = style.figure(1.5 + 0.62 * len(shown))
    ratio, offset = fig.subplots(1, 2, sharey=True)
    ratios = [_each(summed, "sd_ratio") for _, summed in shown]
    offsets = [_each(summed, "mean_offset") for _, summed in shown]
    for place, (i, _) in enumerate(shown):
        flags = _is_weight(shown[place][1])
        _strip(ratio, place, ratios[place], flags, style.colour(i))
        _strip(offset, place, offsets[place], flags, style.colour(i))
        middle = np.nanmedian(ratios[place][:, flags])
        ratio.plot([middle], [place], "|", color=style.INK, markersize=22, markeredgewidth=2)
    ratio.axvline(1.0, color=style.INK, linewidth=1.1, zorder=1)
    ratio.set_xscale("log")
    ratio.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if 1e-3 <= x <= 1e4 else f"1e{round(log10(x))}")
    ratio.set(title="sd ratio, log scale", xlabel="Particles over posterior")
    offset.axvspan(-BAND, BAND, color=style.MUTED, alpha=0.22, linewidth=0, zorder=0)
    largest = max((float(np.nanmax(np.abs(values))) for values in offsets if np.isfinite(values).any()), default=0.0)
    if largest > WIDE:
        offset.set_xscale("symlog", linthresh=1.0)
        ends = [10.0**power for power in range(0, max(1, floor(log10(largest))) + 1, 1 if largest < 1e3 else 2)]
        offset.set_xticks([*(-end for end in reversed(ends)), 0.0, *ends])
        offset.xaxis.set_minor_locator(NullLocator())
        offset.xaxis.set_major_formatter(lambda x, _: f"{x:g}".replace("-", "−"))
    offset.set(
        title="Mean offset" + (", log scale beyond 1" if largest > WIDE else ""), xlabel="Posterior standard deviations"
    )
    ratio.set_yticks(range(len(shown)), [summed.group.label for _, summed in shown])
    ratio.set_ylim(len(shown) - 0.4, -0.6)
    for ax in (ratio, offset):
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
    looks = {"a weight": ("o", style.MUTED, 4), "median": ("|", style.INK, 11), "log ξ": ("D", style.INK, 5)}
    handles = [Line2D([], [], linestyle="", marker=m, color=c, markersize=s) for m, c, s in looks.values()]
    fig.legend(handles, list(looks), loc="outside upper right", ncols=3, handletextpad=0.3)
    return fig


def short(value: float | None) -> str:
    """Format a number with three digits, or as a power of ten if it would be long."""
    if value is None:
        return ABSENT
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(power)}".replace("-", "−")
    return f"{value:.{_places(value)}f}".replace("-", "−")


def _places(value: float) -> int:
    return min(3, max(0, 2 - floor(log10(abs(value))))) if value else 0


def _plus_minus(mean: float | None, spread: float | None) -> str:
    if mean is None or spread is None:
        return short(mean)
    if 1e-3 <= abs(mean) < 1e5:
        return f"{short(mean)} ± {spread:.{_places(mean)}f}"
    power = floor(log10(abs(mean))) if mean else 0
    return f"{short(mean)} ± {spread / 10.0**power:.1f}" + (f"e{power}".replace("-", "−") if power else "")


def _measured(rows: Sequence[Row]) -> list[Row]:
    known = {row["group"] for row in rows if row["level"] == "seed" and row["nuts_particles"] is not None}
    return [row for row in rows if row["level"] == "group" and row["group"] in known]


def _scales(rows: Sequence[Row]) -> dict[int, dict[str, float | None]]:
    """For each number of particles, average the distances of as many NUTS draws over the runs."""
    scales = {}
    runs = [row for row in rows if row["level"] == "seed" and row["nuts_draws_ksd"] is not None]
    for count in sorted({row["nuts_particles"] for row in runs}):
        same = [row for row in runs if row["nuts_particles"] == count]
        known = {name: [row[f"nuts_draws_{name}"] for row in same] for name in MEASURES}
        scales[count] = {name: None if None in values else fmean(values) for name, values in known.items()}
    return scales


def _each(summed: GroupSummary, part: str) -> NDArray[np.float64]:
    """Return an array of seeds x parameters."""
    return np.array([r.reference["particles"][part]["each"] for r in summed.group.runs if r.reference], np.float64)


def _is_weight(summed: GroupSummary) -> NDArray[np.bool_]:
    """Return which parameters are weights: all but the last, log xi, in references that do not say."""
    reference = next(run.reference for run in summed.group.runs if run.reference)
    count = len(reference["particles"]["sd_ratio"]["each"])
    return np.asarray(reference.get("is_weight", [True] * (count - 1) + [False]), bool)


def _strip(ax: Axes, place: int, values: NDArray[np.float64], is_weight: NDArray[np.bool_], colour: str) -> None:
    weights = values[:, is_weight].ravel()
    height = place + 0.52 * ((np.arange(len(weights)) * 0.618034) % 1 - 0.5)  # evenly spread and deterministic
    ax.plot(weights, height, "o", color=colour, markersize=3.2, alpha=0.45, markeredgewidth=0)
    others = values[:, ~is_weight].ravel()
    ax.plot(others, np.full(len(others), place), "D", color=colour, markersize=5, markeredgecolor=style.INK)
