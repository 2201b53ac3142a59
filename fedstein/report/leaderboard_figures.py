"""The figures of a leaderboard: mean ranks with their critical difference, and accuracy against bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedstein.report.style import COLOURS, GRID, INK, MUTED
from fedstein.report.tables import size

FEW = 8  # methods that are all named in a panel; of more only those that nothing beats


def draw_ranks(ranks: Mapping[str, float], difference: float, default: str, path: Path) -> None:
    """Draw mean ranks, best at the top, with a band of the critical difference around the default.

    Args:
        ranks: Method -> mean rank.
        difference: The critical difference.
        default: The method that the band belongs to; without a band where it has no rank.
        path: The PNG file.
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    figure = Figure(figsize=(7.0, 1.3 + 0.27 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(names))[::-1]
    if default in ranks:
        axes.axvspan(ranks[default] - difference, ranks[default] + difference, color=GRID, zorder=0)
    for place, name in zip(places, names, strict=True):
        colour = COLOURS[1] if name == default else COLOURS[0]
        axes.plot(ranks[name], place, "o", color=colour, markersize=6)
        axes.annotate(f"{ranks[name]:.1f}", (ranks[name], place), (7, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlim(0.3, len(names) + 0.7)
    axes.set_xlabel(f"mean rank (1 is best); grey: within the critical difference {difference:.1f} of {default}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


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
        named = [name for name in found if len(found) <= FEW or name in front or name == default]
        places: dict[tuple[float, float], list[str]] = {}
        for name in named:
            places.setdefault((round(found[name][0], -2), round(found[name][1], 4)), []).append(name)
        for together in places.values():  # methods at the same place share a label
            label = ", ".join(together)
            panel.annotate(label, found[together[0]], (4, 4), textcoords="offset points", fontsize=7, color=INK)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, place: size(value)))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.tick_params(axis="x", labelsize=7)
        panel.set_title(task, fontsize=10, loc="left")
        panel.set_xlabel("bytes of a run", fontsize=8)
        panel.set_ylabel(metric, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


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
