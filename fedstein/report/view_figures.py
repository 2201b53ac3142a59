"""Figures of single runs for a paper, by name; here those of coefficients and picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedstein.report import style
from fedstein.report.detail_figures import incidents, particles, reports, rows, scores

NAMED = 40  # with at most this many clients, the axis names each


def forest(run: dict[str, Any]) -> Figure | None:
    """Draw means and 90% intervals of the coefficients, the federated posterior beside others.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if the run has no such view.
    """
    view = (run.get("details") or {}).get("forest") or {}
    if "series" not in view:
        return None
    names, several = view["names"], len(view["series"]) > 1
    fig = style.figure(1.1 + (0.25 if several else 0.2) * len(names))
    ax = fig.subplots()
    places = np.arange(len(names))
    ax.axvline(0, color=style.MUTED, linestyle=(0, (4, 3)), linewidth=1.0)
    for i, series in enumerate(view["series"]):
        at = places + (i - (len(view["series"]) - 1) / 2) * 0.34
        middle, low, high = (np.array(series[key], np.float64) for key in ("mean", "low", "high"))
        ax.hlines(at, low, high, color=style.colour(i), linewidth=1.4)
        ax.plot(middle, at, "os"[i % 2], color=style.colour(i), markersize=3.2)
    ax.set_yticks(places, names, fontsize="small")
    ax.set_ylim(len(names) - 0.3, -0.7)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("Coefficient (features are standardised)" if view["units"] == "standardised" else "Coefficient")
    if several:
        handles = [Line2D([], [], color=style.colour(i), marker="os"[i % 2]) for i in range(len(view["series"]))]
        fig.legend(handles, [s["label"] for s in view["series"]], loc="outside upper left", ncols=len(handles))
    return fig


def probabilities(run: dict[str, Any]) -> Figure | None:
    """Draw the selection probability of every client by round, with a dot for each pick if rounds are not merged.

    Args:
        run: The entry of a run in the views.

    Returns:
        The figure, or None if the scheme has no probabilities.
    """
    view = run.get("heat_map") or {}
    if view.get("probability") is None:
        return None
    values = np.array([[np.nan if v is None else v for v in row] for row in view["probability"]], np.float64)
    clients, first, last = len(values), view["rounds"][0][0], view["rounds"][-1][1]
    fig = style.figure(1.2 + min(6.0, 0.2 * clients))
    ax = fig.subplots()
    extent = (first - 0.5, last + 0.5, clients - 0.5, -0.5)
    drawn = ax.imshow(values, aspect="auto", cmap="Blues", vmin=0, extent=extent, interpolation="nearest")
    fig.colorbar(drawn, ax=ax, label="Selection probability", pad=0.01)
    if view["each"] == 1:
        row, column = np.nonzero(np.array(view["picks"]))
        rounds = np.array([pair[0] for pair in view["rounds"]])
        ax.plot(rounds[column], row, "o", color=style.COLOURS[1], markersize=2.6)
    ax.grid(visible=False)
    if clients <= NAMED:
        ax.set_yticks(np.arange(clients), view["clients"], fontsize="small")
    else:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylabel("Client")
    ax.set_xlabel("Round")
    style.integer_axis(ax)
    return fig


VIEW_FIGURES: dict[str, Callable[[dict[str, Any]], Figure | None]] = {
    "forest": forest,
    "probabilities": probabilities,
    "reports": reports,
    "scores": scores,
    "particles": particles,
    "rows": rows,
    "incidents": incidents,
}
