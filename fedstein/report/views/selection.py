"""The views of client selection: probabilities and picks by client and round, shares, reports and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.report.follow import FollowedRun
from fedstein.report.views.grouping import FollowedGroup
from fedstein.report.views.points import bucketed, short, shorts, step

COLUMNS, CLIENTS = 100, 120  # of the heat map
MARKED, LOGGED = 400, 300  # faults and events that are drawn and listed
QUANTILES = (0.1, 0.5, 0.9)  # of reports
NO_LAW = "This scheme has no selection probabilities; the map shows who was picked."
NO_REPORTS = "No client was asked for a report: this scheme needs none."
NOBODY = "No client has trained yet."
NO_ROUND = "No round is finished yet."
# What is drawn of events.jsonl; the others are listed only.
DRAWN = {"missing", "left out", "asked again", "rejected", "left", "joined", "link away", "link back", "continuing"}


def heat_map(run: FollowedRun) -> dict[str, Any]:
    """Clients x rounds: the mean selection probability, and the number of picks, of each group of rounds."""
    table, names = run.table, run.names
    if not len(table) or not names:
        return {"missing": NOBODY}
    size = step(len(table), COLUMNS)
    groups = -(-len(table) // size)
    picks = np.zeros((len(names), groups), np.int64)
    np.add.at(picks, (table.picks[:, 1], table.picks[:, 0] // size), 1)
    law = table.matrix("probabilities")
    if law is not None:  # clients after the last candidate have no column
        law = np.pad(law, ((0, 0), (0, max(0, len(names) - law.shape[1]))), constant_values=np.nan)
    means = None if law is None else bucketed(law.T, size, "mean")
    shown = np.arange(len(names))
    notes = []
    if len(names) > CLIENTS:
        weight = picks.sum(axis=1) if means is None else np.nan_to_num(means).sum(axis=1)
        shown = np.sort(np.argsort(-weight, kind="stable")[:CLIENTS])
        what = "picked most often" if means is None else "of the greatest probability"
        notes.append(f"The {CLIENTS} of {len(names)} clients {what}.")
    numbers = table.numbers("round")
    first = numbers[np.arange(groups) * size]
    last = bucketed(numbers, size, "last")
    return {
        "clients": [names[i] for i in shown],
        "rounds": [[int(a), int(b)] for a, b in zip(first, last, strict=True)],
        "each": size,
        "probability": None if means is None else _rounded(means[shown]),
        "picks": picks[shown].tolist(),
        "fair": short(_fair(run)),
        "notes": [*([NO_LAW] if means is None else []), *notes],
    }


def _rounded(law: np.ndarray) -> list[list[float | None]]:
    """Probabilities with four digits more than a fair share needs; None if a client was no candidate."""
    places = 4 + len(str(len(law)))
    return [[None if value != value else value for value in row] for row in np.round(law, places).tolist()]


def _fair(run: FollowedRun) -> float:
    """The probability of each client if all were equally likely."""
    return 1.0 / max(len(run.names), 1)


def shares(group: FollowedGroup) -> dict[str, Any]:
    """How often each client trained, over the seeds of a group, and how often it would in a fair share."""
    clients = max(len(run.names) for run in group.runs)
    if not any(len(run.table) for run in group.runs) or not clients:
        return {"missing": NOBODY}
    counts = np.stack([run.table.counts(clients)[:clients] for run in group.runs]).astype(np.float64)
    names = max((run.names for run in group.runs), key=len)
    return {
        "clients": names,
        "mean": shorts(counts.mean(axis=0)),
        "low": shorts(counts.min(axis=0)),
        "high": shorts(counts.max(axis=0)),
        "fair": short(counts.mean()),
        "seeds": len(group.runs),
    }


def reports(run: FollowedRun) -> dict[str, Any]:
    """Return the median and the central 80% over rounds of each client's reports, the greatest median first."""
    values = run.table.matrix("reports")
    if values is None:
        return {"missing": NO_REPORTS if len(run.table) else NO_ROUND}
    recent = values[-(len(values) // 4 or len(values)) :].astype(np.float64)
    known = ~np.isnan(recent)
    asked = np.flatnonzero(known.any(axis=0))
    if not len(asked):
        return {"missing": "No report arrived in the last quarter of the rounds."}
    if known[:, asked].all():
        quantiles = np.quantile(np.ascontiguousarray(recent[:, asked].T), QUANTILES, axis=1).T
    else:
        quantiles = np.stack([np.quantile(recent[known[:, i], i], QUANTILES) for i in asked])
    order = np.argsort(-quantiles[:, 1], kind="stable")
    names, kind = run.names, run.section("selection").get("kind", "report")
    return {
        "clients": [names[asked[i]] for i in order],
        "low": shorts(quantiles[order, 0]),
        "median": shorts(quantiles[order, 1]),
        "high": shorts(quantiles[order, 2]),
        "count": [int(known[:, asked[i]].sum()) for i in order],
        "what": str(kind).upper() if kind in ("ksd", "hip") else str(kind),
        "rounds": len(recent),
    }


def incidents(run: FollowedRun) -> dict[str, Any]:
    """Faults of rounds and events of a federation, on the axis of rounds."""
    names = run.names
    marks: list[tuple[int, str, Sequence[str]]] = [
        (number, what, [_name(names, client) for client in who]) for number, what, who in run.table.faults
    ]
    log, at = [], 0
    for entry in run.events:
        number = entry.get("round")
        at = number if isinstance(number, int) and number > 0 else at
        client, who = entry.get("client"), entry.get("name") or ""
        who = who or (_name(names, client) if isinstance(client, int) else "")
        what = entry["event"]
        if what in DRAWN:
            marks.append((at, what, [who] if who else []))
        rest = {k: v for k, v in entry.items() if k not in ("event", "round", "client", "name", "time")}
        note = ", ".join(f"{key} {str(value)[:120]}" for key, value in rest.items() if value not in (None, "", []))
        moment = entry.get("time")
        log.append([moment if isinstance(moment, (int, float)) else None, at, what, who, note])
    if not marks and not log:
        return {"missing": "Nothing went wrong: no fault and no event is recorded."}
    known = dict.fromkeys((number, what, tuple(who)) for number, what, who in marks)  # rounds and events overlap
    marks = sorted(known, key=lambda mark: mark[0])
    kinds = sorted({what for _, what, _ in marks})
    return {
        "kinds": kinds,
        "marks": [[number, kinds.index(what), ", ".join(who)] for number, what, who in marks[-MARKED:]],
        "left_off": max(0, len(marks) - MARKED),
        "log": log[-LOGGED:][::-1],
        "rounds": run.table.last_round if len(run.table) else 0,
    }


def _name(names: list[str], client: int) -> str:
    return names[client] if 0 <= client < len(names) else f"client {client}"
