"""The figures of a leaderboard: critical-difference diagrams of mean ranks, and accuracy against bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedstein.report.labels import place_labels
from fedstein.report.style import COLOURS, INK, MUTED
from fedstein.report.tables import size

DPI = 110
FEW = 8  # methods that are all named in a panel; of more only those that nothing beats


def draw_ranks(ranks: Mapping[str, tuple[Mapping[str, float], float]], default: str, path: Path) -> None:
    """Draw critical-difference diagrams (Demsar 2006), one panel for each metric, with the best method at the top.

    A bar at the right joins methods whose mean ranks are not further apart than the critical difference.

    Args:
        ranks: Metric -> mean ranks by method, and the critical difference.
        default: The method that is drawn in another colour.
        path: The PNG file.
    """
    most = max(len(found) for found, _ in ranks.values())
    figure = Figure(figsize=(1.2 + 3.6 * len(ranks), 1.3 + 0.27 * most), layout="constrained")
    for axes, (metric, (found, difference)) in zip(
        np.ravel(figure.subplots(1, len(ranks))), ranks.items(), strict=True
    ):
        names = sorted(found, key=lambda name: found[name])
        for place, name in enumerate(names):
            axes.plot(found[name], place, "o", color=COLOURS[1] if name == default else COLOURS[0], markersize=6)
            axes.annotate(f"{found[name]:.1f}", (found[name], place), (7, -3), textcoords="offset points", fontsize=8)
        bars = cliques([found[name] for name in names], difference)
        for number, (first, last) in enumerate(bars):
            axes.plot([len(names) + 3.4 + 0.5 * number] * 2, [first - 0.25, last + 0.25], color=INK, linewidth=2.5)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_ylim(len(names) - 0.3, -0.7)
        axes.set_xlim(0.3, len(names) + 3.9 + 0.5 * len(bars))
        axes.set_xticks([tick for tick in axes.get_xticks() if 1 <= tick <= len(names)])
        axes.set_title(metric, fontsize=10, loc="left")
        axes.set_xlabel(f"mean rank, 1 is best; critical difference {difference:.1f}", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The largest groups of neighbours in a list of ranks whose ends are not further apart than the difference.

    Args:
        ranks: Mean ranks in ascending order.
        difference: The critical difference.

    Returns:
        For each group the places of its first and its last member. Groups of one and groups within others are left out.
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def draw_costs(points: Mapping[str, Mapping[str, tuple[float, float]]], metric: str, default: str, path: Path) -> None:
    """Draw the score against the bytes of a run, one panel a task, and join the methods that nothing beats in both.

    Args:
        points: Task -> method -> (bytes, score).
        metric: What the score is called.
        default: The method that is drawn in another colour.
        path: The PNG file.
    """
    columns = min(2, len(points))
    rows = -(-len(points) // columns)
    figure = Figure(figsize=(5.0 * columns, 3.6 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for panel in panels[len(points) :]:
        panel.set_visible(False)
    for panel, (task, found) in zip(panels, points.items(), strict=False):
        front = pareto(found)
        panel.plot(*zip(*(found[name] for name in front), strict=True), color=MUTED, linewidth=1, zorder=1)
        for name, (sent, score) in found.items():
            panel.plot(sent, score, "o", color=COLOURS[1] if name == default else COLOURS[0], markersize=5)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, place: size(value)))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.tick_params(axis="x", labelsize=7)
        panel.set_title(task, fontsize=10, loc="left")
        panel.set_xlabel("bytes of a run", fontsize=8)
        panel.set_ylabel(metric, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.12, y=0.15)
    figure.set_dpi(DPI)
    figure.draw_without_rendering()  # panels have their final size, which places of labels depend on
    for panel, found in zip(panels, points.values(), strict=False):
        place_labels(panel, _labels(found, default), list(found.values()))
    figure.savefig(path, dpi=DPI)


def _labels(found: Mapping[str, tuple[float, float]], default: str) -> list[tuple[str, float, float]]:
    """The methods that are named; those at the same place share a label."""
    front = pareto(found)
    places: dict[tuple[float, float], list[str]] = {}
    for name, (sent, score) in found.items():
        if len(found) <= FEW or name in front or name == default:
            places.setdefault((round(sent, -2), round(score, 4)), []).append(name)
    return [(", ".join(together), *found[together[0]]) for together in places.values()]


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The methods for which no other has fewer bytes and a score that is at least as high, by bytes.

    Args:
        points: Method -> (bytes, score).
    """
    front: list[str] = []
    for name in sorted(points, key=lambda each: (points[each][0], -points[each][1])):
        if not front or points[name][1] > points[front[-1]][1]:
            front.append(name)
    return front
