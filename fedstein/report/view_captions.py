"""Captions of figures of single runs: the content and the meaning of intervals. Data and seed are added later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def view_caption(name: str, run: dict[str, Any]) -> str:
    """Return the caption of a figure of ``VIEW_FIGURES``: its content, and the meaning of its intervals.

    Args:
        name: The name of the figure.
        run: The entry of the run in the views.

    Returns:
        Sentences for a caption; the data and the seed are not in it.
    """
    return _CAPTIONS[name](run)


def _forest_caption(run: dict[str, Any]) -> str:
    view = run["details"]["forest"]
    series = " and ".join(s["label"] for s in view["series"])
    return f"Posterior means and central {view['level']:.0%} intervals of the coefficients: {series}."


def _picks_caption(run: dict[str, Any]) -> str:
    each = run["heat_map"]["each"]
    merged = f"each column is the mean of {each} rounds" if each > 1 else "dots are the clients that trained"
    return f"Selection probability of each client by round; {merged}. There is no interval: these are the numbers used."


def _reports_caption(run: dict[str, Any]) -> str:
    view = run["reports"]
    return (
        f"The {view['what']} reports of each client, the greatest median first: dots are medians and lines the central "
        f"80% over the last {view['rounds']} rounds."
    )


def _scores_caption(run: dict[str, Any]) -> str:
    view = run.get("clients") or run["details"]["clients"]
    return f"The scores of the posterior for each client, {view['where']}; the worst first. Dots without an interval."


def _particles_caption(run: dict[str, Any]) -> str:
    view = run["details"]["particles"]
    of = "" if view["exact"] else " of a random projection to 16 dimensions"
    return (
        f"Left: the spread of {view['count']} particles, the root of the mean variance of a coordinate, by round. "
        f"Right: their two principal components, which have {view['share']:.0%} of the variance over all rounds{of}. "
        "There is no interval: these are the particles of one run."
    )


def _rows_caption(run: dict[str, Any]) -> str:
    view = run["details"]["rows"]
    some = f"{len(view['rows'])} of {view['scanned']:,} test rows"
    if view["task"] == "classification":
        what = f"mutual information of label and parameter over {view['particles']} particles; the two likeliest labels"
        what = what if "picture" in view["rows"][0] else what.partition(";")[0]
        unit = " nats"
    else:
        what, unit = f"standard deviation of the mean over {view['particles']} particles", ""
    named = "" if "picture" in view["rows"][0] else " Each line names the row, the truth and what is predicted."
    return (
        f"The {some} with the highest epistemic uncertainty ({what}). The median over all these rows is "
        f"{view['median']:.2g}{unit}, the highest {view['rows'][0]['epistemic']:.2g}{unit}.{named}"
    )


def _incidents_caption(run: dict[str, Any]) -> str:
    return "Faults and events by round; each dot is one of them."


_CAPTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "forest": _forest_caption,
    "probabilities": _picks_caption,
    "reports": _reports_caption,
    "scores": _scores_caption,
    "particles": _particles_caption,
    "rows": _rows_caption,
    "incidents": _incidents_caption,
}
