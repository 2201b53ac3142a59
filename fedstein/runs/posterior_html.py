"""The HTML that a notebook shows for a posterior: a short table, made without computation."""

from __future__ import annotations

from html import escape
from typing import Any

from fedstein.console import counted

METRICS = ("accuracy", "nll", "rmse", "ece")


def html_of(posterior: Any) -> str:
    """A small table about a posterior.

    Args:
        posterior: The posterior. This function does not make its draws.

    Returns:
        HTML without styles of its own, so that the notebook's theme applies.
    """
    n, d = posterior.particles.shape
    names, gaussian = posterior.client_names, ", site Gaussian" if posterior.gaussian else ""
    facts = [
        ("model", posterior.model.name),
        ("posterior", f"{counted(n, 'particle')} of {counted(d, 'parameter')}{gaussian}"),
        ("clients", f"{len(names)}: {_few(names)}" if names else str(posterior.config.partition.clients)),
        ("rounds", str(len(posterior.rounds))),
    ]
    if posterior.labels:
        facts.append(("labels", _few([str(label) for label in posterior.labels])))
    last = posterior.rounds[-1] if posterior.rounds else {}
    scores = [f"{name} {last[name]:.4g}" for name in METRICS if last.get(name) is not None]
    if scores:
        facts.append(("last round", ", ".join(scores)))
    if last.get("stopped"):
        facts.append(("ended early", last["stopped"]))
    if posterior.doubts:
        facts.append(("not to be trusted", " ".join(posterior.doubts)))
    rows = "".join(f"<tr><th style='text-align:left'>{escape(k)}</th><td style='text-align:left'>{escape(v)}</td></tr>"
                   for k, v in facts)  # fmt: skip
    return f"<b>fedstein.Posterior</b><table>{rows}</table>"


def _few(names: Any, most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
