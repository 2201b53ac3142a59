"""Figures of a single run for a paper: particles, uncertain rows, reports, scores by client, and faults."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.ticker import MaxNLocator

from fedstein.report import style

NAMED = 40  # with at most this many clients, the axis names each
ACROSS = 6  # pictures in a row
LONGEST = 24  # characters of a name on an axis
PALE = "#bfdcec"  # the first colour, without grid lines shining through
SCORES = {"accuracy": "Accuracy", "rmse": "RMSE"}


def particles(run: dict[str, Any]) -> Figure | None:
    """Draw the spread of the particles by round, and their two principal components in the first and last kept round.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if the run has no such view.
    """
    view = detail(run, "particles", "frames")
    if view is None:
        return None
    fig = style.figure(3.6)
    left, right = fig.subplots(1, 2)
    marker = "o" if len(view["rounds"]) <= 12 else ""
    left.plot(view["rounds"], view["spread"], color=style.colour(0), marker=marker, markersize=4)
    left.set(title="Spread", xlabel="Round", ylabel="Root mean variance of a coordinate")
    left.set_ylim(bottom=0)
    style.integer_axis(left)
    first, last = view["frames"][0], view["frames"][-1]
    if len(view["frames"]) > 1:
        right.plot(*np.array(first[1]).T, "o", color=style.MUTED, markersize=3.5, alpha=0.6, label=f"round {first[0]}")
    right.plot(*np.array(last[1]).T, "o", color=style.colour(0), markersize=5, label=f"round {last[0]}")
    right.set(title="Particles", xlabel="First principal component", ylabel="Second principal component")
    right.xaxis.set_major_locator(MaxNLocator(5))
    fig.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return fig


def rows(run: dict[str, Any]) -> Figure | None:
    """Draw the test rows of the highest epistemic uncertainty: as pictures, or else as bars.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if the run has no such view.
    """
    view = detail(run, "rows", "rows")
    if view is None or not view["rows"]:
        return None
    return _pictures(view) if "picture" in view["rows"][0] else _bars(view)


def _pictures(view: dict[str, Any]) -> Figure:
    shown = view["rows"]
    down = -(-len(shown) // ACROSS)
    fig = style.figure(2.1 * down)
    for place, ax in enumerate(fig.subplots(down, ACROSS, squeeze=False).flat):
        ax.set_axis_off()
        if place < len(shown):
            row = shown[place]
            picture = imread(io.BytesIO(base64.b64decode(row["picture"].split(",", 1)[1])))
            ax.imshow(picture, cmap="gray", interpolation="nearest")
            said = ", ".join(f"{name}: {100 * p:.0f}%" for name, p in row["predicted"][:2])
            ax.set_title(f"label {row['truth']}\n{said}", fontsize="small", fontweight="normal", loc="center")
    return fig


def _bars(view: dict[str, Any]) -> Figure:
    shown, classes = view["rows"], view["task"] == "classification"
    fig = style.figure(1.2 + 0.26 * len(shown))
    ax = fig.subplots()
    places = np.arange(len(shown))
    values = np.array([row["epistemic"] for row in shown], np.float64)
    ax.barh(places, values, height=0.62, color=style.colour(0), label="epistemic")
    if classes:
        rest = np.array([row["total"] for row in shown], np.float64) - values
        ax.barh(places, rest, left=values, height=0.62, color=PALE, label="aleatoric")
        fig.legend(*ax.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    names = [f"row {row['row']}: {_truth_and_prediction(row, classes)}" for row in shown]
    _name_lines(ax, names)
    ax.set_xlabel("Entropy (nats)" if classes else "Epistemic standard deviation, in the unit of the target")
    return fig


def _truth_and_prediction(row: dict[str, Any], classes: bool) -> str:
    """The label or target of a row, an arrow, and what is predicted."""
    if not classes:
        return f"{row['truth']:.4g} → {row['mean']:.4g}"
    name, probability = row["predicted"][0]
    return f"{style.shortened(str(row['truth']), 16)} → {style.shortened(name, 16)} {probability:.0%}"


def reports(run: dict[str, Any]) -> Figure | None:
    """Draw the median and the central 80% of what each client reported, the greatest median first.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if no client was asked for a report.
    """
    view = run.get("reports") or {}
    if "median" not in view:
        return None
    fig = style.figure(1.0 + min(6.5, 0.24 * len(view["clients"])))
    ax = fig.subplots()
    places = np.arange(len(view["clients"]))
    low, middle, high = (np.array(view[key], np.float64) for key in ("low", "median", "high"))
    ax.hlines(places, low, high, color=style.colour(0), linewidth=1.4)
    ax.plot(middle, places, "o", color=style.colour(0), markersize=3.2)
    _name_lines(ax, view["clients"])
    ax.set_xlabel(f"{view['what']} report")
    return fig


def scores(run: dict[str, Any]) -> Figure | None:
    """Draw the score and the calibration error of each client, the worst score first.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if the run has no such view.
    """
    view = run.get("clients") or detail(run, "clients", "score")
    if view is None:
        return None
    panels = [(SCORES.get(view["metric"], view["metric"]), view["score"])]
    if view["ece"] is not None and any(value is not None for value in view["ece"]):
        panels.append(("Expected calibration error", view["ece"]))
    fig = style.figure(1.1 + min(6.5, 0.24 * len(view["clients"])))
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for i, (ax, (title, values)) in enumerate(zip(axes, panels, strict=True)):
        places = [k for k, value in enumerate(values) if value is not None]
        ax.plot([values[k] for k in places], places, "os"[i], color=style.colour(i), markersize=4)
        ax.set_xlabel(title)
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_major_locator(MaxNLocator(5))
    _name_lines(axes[0], view["clients"])
    return fig


def incidents(run: dict[str, Any]) -> Figure | None:
    """Draw faults and events by round, one line for each kind.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if nothing went wrong.
    """
    view = run.get("incidents") or {}
    if not view.get("marks"):
        return None
    fig = style.figure(1.0 + 0.3 * len(view["kinds"]))
    ax = fig.subplots()
    rounds, kinds = [mark[0] for mark in view["marks"]], [mark[1] for mark in view["marks"]]
    ax.plot(rounds, kinds, "o", color=style.COLOURS[1], markersize=4.5, alpha=0.7)
    ax.set_yticks(range(len(view["kinds"])), view["kinds"])
    ax.set_ylim(len(view["kinds"]) - 0.5, -0.5)
    last = max(view["rounds"], 1)
    ax.set_xlim(-0.015 * last, 1.015 * last)
    ax.set_xlabel("Round")
    style.integer_axis(ax)
    return fig


def detail(run: dict[str, Any], name: str, key: str) -> dict[str, Any] | None:
    """A view of the posterior of a run; None if it is missing.

    Args:
        run: The entry of a run in the views.
        name: The name of the view.
        key: A key that the view has if it can be drawn.
    """
    view = (run.get("details") or {}).get(name) or {}
    return view if key in view else None


def _name_lines(ax: Axes, names: Sequence[str]) -> None:
    """Name the lines of a plot from above, or only say that they are clients if there are too many."""
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    if len(names) <= NAMED:
        longest = 60 if names and names[0].startswith("row ") else LONGEST
        ax.set_yticks(range(len(names)), [style.shortened(name, longest) for name in names], fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(names)} clients")
