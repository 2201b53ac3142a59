"""The tables and the figure of runs in which each client evaluated the posterior on its own held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from fedstein.evaluation.metrics import METRICS, no_values
from fedstein.report import style
from fedstein.report.groups import ABSENT
from fedstein.report.load import Run
from fedstein.report.summary import Summary
from fedstein.report.tables import NAMES, Column, fixed, in_text

NAMED = 40  # with at most this many clients, the axis shows their ids
TOGETHER = (0, (4, 3))


def document_of(run: Run) -> dict[str, Any]:
    """Return the evaluation by the clients of a run. It is empty if the server evaluated."""
    return run.evaluation or {"together": {"rows": 0, **no_values()}, "clients": []}


def client_entries(run: Run, metric: str) -> list[dict[str, Any]]:
    """Return the entries of the clients of a run, the worst first and those without a score last.

    Args:
        run: The run.
        metric: The metric to sort by.
    """
    sign = 1 if METRICS[metric].larger_is_better else -1
    return sorted(document_of(run)["clients"], key=lambda e: (e[metric] is None, sign * (e[metric] or 0.0), e["id"]))


def client_columns(run: Run, metric: str) -> list[Column]:
    """Build a table with one row for each client and one for all clients together.

    Args:
        run: The run.
        metric: The leading metric of the report.
    """
    entries = client_entries(run, metric)
    together = document_of(run)["together"]
    rows = [*entries, {"id": ABSENT, "name": "together", **together}]
    columns = [
        Column("Client", [str(entry["id"]) for entry in rows]),
        Column("Name", [str(entry["name"]) for entry in rows], number=False),
        Column("Held-out rows", ["no answer" if entry["rows"] is None else str(entry["rows"]) for entry in rows]),
    ]
    for name in (metric, "nll", "brier", "ece"):
        if any(entry[name] is not None for entry in rows):
            columns.append(Column(NAMES[name], [fixed(entry[name], 3) for entry in rows]))
    return columns


def client_range(run: Run, metric: str) -> str:
    """Describe the range of the scores of the clients of a run, as a heading of its table."""
    values = [entry[metric] for entry in client_entries(run, metric) if entry[metric] is not None]
    together = document_of(run)["together"]
    if not values:
        return "no client has a score"
    ends = f"{in_text(metric)} from {fixed(min(values), 3)} to {fixed(max(values), 3)}"
    return f"{len(values)} clients, {ends}; together {fixed(together[metric], 3)} on {together['rows']} rows"


def clients(summary: Summary) -> Figure | None:
    """Draw the leading metric of each client, the worst first: one panel for each group, one line for each seed.

    A larger dot stands for more held-out rows.

    Args:
        summary: The groups.

    Returns:
        The figure, or None if no client evaluated.
    """
    metric = summary.metric
    shown = []
    for i, summed in enumerate(summary.groups):
        runs = [run for run in summed.group.runs if any(e[metric] is not None for e in client_entries(run, metric))]
        if runs:
            shown.append((i, summed.group.label, runs))
    if not shown:
        return None
    fig = style.figure(0.9 + 2.1 * len(shown))
    axes = fig.subplots(len(shown), 1, sharey=True, squeeze=False)[:, 0]
    for ax, (i, label, runs) in zip(axes, shown, strict=True):
        for run in runs:
            entries = [entry for entry in client_entries(run, metric) if entry[metric] is not None]
            place, values = np.arange(len(entries)), [entry[metric] for entry in entries]
            share = np.array([entry["rows"] for entry in entries], np.float64)
            ax.plot(place, values, color=style.colour(i), linewidth=1.0, alpha=0.5)
            ax.scatter(place, values, s=12 + 36 * share / share.max(), color=style.colour(i), linewidths=0, alpha=0.8)
            ax.axhline(document_of(run)["together"][metric], color=style.INK, linestyle=TOGETHER, linewidth=1.1)
        ax.set_title(label)
        ax.set_ylabel(NAMES[metric])
        ax.grid(visible=False, axis="x")
        if len(runs) == 1 and len(entries) <= NAMED:
            ax.set_xticks(place, [str(entry["id"]) for entry in entries], fontsize="small")
            ax.set_xlabel("Client")
        else:
            ax.xaxis.set_major_locator(NullLocator())
            ax.set_xlabel("Clients")
    line = Line2D([], [], color=style.INK, linestyle=TOGETHER, linewidth=1.1)
    fig.legend([line], ["all held-out rows together"], loc="outside upper right", handlelength=2.4)
    return fig
