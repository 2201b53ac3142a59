"""The figure of section III: indicators against true decreases, rank correlations, Deltas, and harmful candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedstein.report import style

Rows = Sequence[Mapping[str, Any]]
LENGTHS = {"limit": "limit", "step": "one step", "round": "a round's steps"}
INDICATORS = {"ksd": "KSD", "hip": "HIP", "rate": r"hip($\tilde{s}_k, s_{\mathrm{global}}$)"}


def draw_theory(clients: Rows, rounds: Rows) -> dict[str, bytes]:
    """Draw the figure.

    Args:
        clients: The rows of ``theory.csv``.
        rounds: The rows of ``theory_rounds.csv``.

    Returns:
        The figure by format: png, svg and pdf.
    """
    with style.style():
        fig = style.figure(10.2)
        axes = fig.subplots(3, 2)
        local_scatter(axes[0, 0], some_rounds(clients))
        global_scatter(axes[0, 1], some_rounds(clients))
        correlations(axes[1, 0], rounds, "limit", "(c) Rank correlation, limit")
        correlations(axes[1, 1], rounds, "step", "(d) Rank correlation, one step")
        deltas(axes[2, 0], rounds)
        harm(axes[2, 1], rounds)
        for ax in axes[1:].flat:
            ax.set_xlabel("Round")
            style.integer_axis(ax)
        fig.supxlabel(
            "(a), (b): one run; its first, middle and last measurement.  (c) to (f): mean over all runs, band from "
            "minimum to maximum.",
            fontsize=9,
            color=style.MUTED,
        )
        return style.as_files(fig)


def some_rounds(clients: Rows) -> Rows:
    """Return the candidates of the first run in its first, middle and last measurement; more points would overlap."""
    first = [row for row in clients if (row["scheme"], row["seed"]) == (clients[0]["scheme"], clients[0]["seed"])]
    looks = sorted({row["round"] for row in first})
    shown = {looks[0], looks[len(looks) // 2], looks[-1]}
    return [row for row in first if row["round"] in shown]


def local_scatter(ax: Axes, rows: Rows) -> None:
    """Draw the KSD against the true decrease of the local free energy."""
    for index, (length, name) in enumerate(LENGTHS.items()):
        x = [row["ksd"] for row in rows]
        y = [row[f"local_{length}"] / row[f"epsilon_{length}"] for row in rows]
        points(ax, x, y, index, name)
    same_line(ax)
    ax.set(title="(a) Local free energy", xlabel="KSD", ylabel="True decrease / ε")
    ax.legend(loc="upper left", title="length", fontsize=9, title_fontsize=9, alignment="left")


def global_scatter(ax: Axes, rows: Rows) -> None:
    """Draw two indicators against the true decrease of the global free energy."""
    y = [row["global_limit"] / row["epsilon_limit"] for row in rows]
    number = 1 + max(row["client"] for row in rows)
    points(ax, [number * row["hip"] for row in rows], y, 1, "K · HIP (Theorem 2)", hollow=True)
    points(ax, [row["rate"] for row in rows], y, 2, INDICATORS["rate"])
    same_line(ax)
    ax.set(title="(b) Global free energy, limit", xlabel="Indicator", ylabel="True decrease / ε")
    ax.legend(loc="upper left", fontsize=9)


def points(ax: Axes, x: Sequence[float], y: Sequence[float], index: int, name: str, hollow: bool = False) -> None:
    """Draw the points of one indicator."""
    colour = style.colour(index)
    if hollow:  # hollow, so that points below stay visible
        ax.scatter(x, y, s=46, facecolor="none", edgecolor=colour, linewidth=0.9, alpha=0.8, label=name)
    else:
        ax.scatter(x, y, s=14, color=colour, alpha=0.6, linewidth=0, label=name)


def same_line(ax: Axes) -> None:
    """Draw the line on which the indicator equals the decrease."""
    ax.axline((0, 0), slope=1, color=style.MUTED, linewidth=1, zorder=0)
    ax.ticklabel_format(style="sci", scilimits=(-2, 4), axis="both")


def correlations(ax: Axes, rounds: Rows, length: str, title: str) -> None:
    """Draw the rank correlations of the indicators with the true global decrease."""
    for index, (name, label) in enumerate(INDICATORS.items()):
        band(ax, rounds, f"rank_{name}_global_{length}", index, label)
    ax.set(title=title, ylabel="with the true global decrease", ylim=(-1.05, 1.05))
    ax.legend(loc="lower left", fontsize=9)


def deltas(ax: Axes, rounds: Rows) -> None:
    """Draw the paper's Delta of both indicators."""
    for index, name in enumerate(("ksd", "hip")):
        band(ax, rounds, f"delta_{name}", index, f"$\\Delta_{{\\mathrm{{{name.upper()}}}}}$ / ε")
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set(title="(e) The paper's Δ", ylabel="Tightening of the bound / ε")
    ax.legend(loc="best", fontsize=9)


def harm(ax: Axes, rounds: Rows) -> None:
    """Draw the share of candidates whose step would raise the global free energy."""
    for index, (length, name) in enumerate(LENGTHS.items()):
        band(ax, rounds, f"rising_{length}", index, f"F rises, {name}", share=True)
    band(ax, rounds, "negative_hip", 3, "HIP negative", share=True)
    ax.set(title="(f) Candidates that would do harm", ylabel="Share of candidates", ylim=(-0.05, 1.5))
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.legend(loc="upper left", fontsize=9, ncols=2)


def band(ax: Axes, rounds: Rows, key: str, index: int, label: str, share: bool = False) -> None:
    """Draw the mean over runs (both schemes, all seeds) and the range from minimum to maximum."""
    numbers = sorted({row["round"] for row in rounds})
    each = [
        [
            row[key] / (row["clients"] if share else 1)
            for row in rounds
            if row["round"] == number and row[key] == row[key]
        ]
        for number in numbers
    ]
    kept = [(number, values) for number, values in zip(numbers, each, strict=True) if values]
    x = [number for number, _ in kept]
    mean = [np.mean(v) for _, v in kept]
    # Curves may overlap: later ones are thinner and dashed, so that all of them are visible.
    ax.plot(x, mean, color=style.colour(index), label=label, linewidth=2.4 - 0.4 * index, linestyle=style.DASHES[index])
    low, high = ([pick(v) for _, v in kept] for pick in (np.min, np.max))
    ax.fill_between(x, low, high, color=style.colour(index), alpha=0.15, linewidth=0)
