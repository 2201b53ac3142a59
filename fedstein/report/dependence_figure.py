"""The figure of accuracy by kind of sites, order of clients and scheme: a panel for each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from fedstein.report import style

MARKERS = ("o", "s", "^", "D")
APART = 0.17  # between the schemes of a group


class Point(NamedTuple):
    """The mean accuracy of a scheme and half its interval over seeds; zero if there is one seed."""

    sites: str
    order: str
    scheme: str
    mean: float
    half: float


def draw_dependence(panels: Sequence[tuple[str, Sequence[Point]]]) -> dict[str, bytes]:
    """Draw the figure, one panel under the other.

    Args:
        panels: For each setting its title and its points.

    Returns:
        The figure by format: png, svg and pdf.
    """
    schemes = list(dict.fromkeys(point.scheme for _, points in panels for point in points))
    with style.style():
        fig = style.figure(3.1 * len(panels) + 0.4)
        axes = fig.subplots(len(panels), 1, squeeze=False)
        for ax, (title, points) in zip(axes.flat, panels, strict=True):
            draw_panel(ax, points, schemes)
            ax.set(title=title, ylabel="Accuracy, last quarter")
        handles, labels = [], []
        for ax in axes.flat:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                if label not in labels:
                    handles.append(handle)
                    labels.append(label)
        fig.legend(handles, labels, loc="outside upper left", ncols=len(labels), columnspacing=1.6)
        return style.as_files(fig)


def draw_panel(ax: Axes, points: Sequence[Point], schemes: Sequence[str]) -> None:
    """Draw the points of a setting, in groups by sites and order."""
    groups = list(dict.fromkeys((p.sites, p.order) for p in points))
    groups.sort(key=lambda group: [p.sites for p in points].index(group[0]))
    places, at = {}, 0.0
    for number, group in enumerate(groups):
        if number and group[0] != groups[number - 1][0]:
            at += 0.5
            ax.axvline(at - 0.75, color=style.MUTED, linewidth=0.8)
        places[group] = at
        at += 1
    for index, scheme in enumerate(schemes):
        own = [p for p in points if p.scheme == scheme]
        shift = (index - (len(schemes) - 1) / 2) * APART
        ax.errorbar(
            [places[p.sites, p.order] + shift for p in own],
            [p.mean for p in own],
            yerr=[p.half for p in own],
            fmt=MARKERS[index % len(MARKERS)],
            color=style.colour(index),
            markersize=5,
            capsize=2,
            linewidth=1.2,
            label=scheme,
        )
    ax.set_xlim(-0.6, max(places.values()) + 0.6)
    ax.set_xticks([places[group] for group in groups], [order for _, order in groups])
    ax.grid(axis="x", visible=False)
    for sites in dict.fromkeys(group[0] for group in groups):
        own_places = [places[group] for group in groups if group[0] == sites]
        middle = (own_places[0] + own_places[-1]) / 2
        ax.annotate(
            sites,
            (middle, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -30),
            textcoords="offset points",
            ha="center",
            color=style.MUTED,
        )
