"""The view of nodes: who is connected, who is asked now, and how often each was late, left out or asked again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from fedstein.report.follow import RUNNING, FollowedRun

# What the kinds of requests ask for, in words; others are shown as they are.
ASKED_FOR = {
    "ask": "a report",
    "train": "training",
    "evaluate": "an evaluation",
    "expand": "its site",
    "nodes": "its site",
    "weigh": "log-likelihoods",
    "scale": "sums",
    "sums": "sums",
}
NO_ANSWER = ("did not finish training", "missing", "rejected")  # faults of a client that was asked
CONNECTED, AWAY, UNKNOWN, LEFT_OUT = "connected", "away", "not seen yet", "left out"


def nodes(run: FollowedRun) -> dict[str, Any] | None:
    """The state and the history of each node.

    Args:
        run: The run.

    Returns:
        ``rows``, one entry for each client, and ``live``, whether the server of the run is at work; None for a run in
        process, which has no nodes.
    """
    if not run.events:
        return None
    names = run.names
    happened = {name: Counter[str]() for name in names}
    state = dict.fromkeys(names, UNKNOWN)
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    for entry in run.events:
        client, what, number = entry.get("client"), entry["event"], entry.get("round")
        if not isinstance(client, int) or not 0 <= client < len(names):
            continue
        who, number = names[client], number if isinstance(number, int) else 0
        happened[who][what] += 1
        if what in ("left", "joined"):
            state[who], since[who] = AWAY if what == "left" else CONNECTED, number
        if what == "left out" and isinstance(entry.get("until"), int):
            until[who] = entry["until"]
    live, last = run.state == RUNNING, run.table.last_round if len(run.table) else 0
    asked = run.asked if live else {}
    counts, asked_often, reported = run.table.counts(len(names)), _asked(run, len(names)), _reported(run, len(names))
    rows = []
    for i, name in enumerate(names):
        left_out = until.get(name, 0) > last
        now = asked.get("kind") if i in asked.get("clients", ()) else None
        rows.append(
            {
                "name": name,
                "state": LEFT_OUT if left_out and state[name] == CONNECTED else state[name],
                "since": since.get(name, 0),
                "until": until.get(name) if left_out else None,
                "now": ASKED_FOR.get(now, str(now)) if now else None,
                "now_since": asked.get("since") if now else None,
                "asked": int(asked_often[i]),
                "reported": int(reported[i]),
                "trained": int(counts[i]),
                "late": happened[name]["missing"],
                "left_out": happened[name]["left out"],
                "asked_again": happened[name]["asked again"],
                "rejected": happened[name]["rejected"],
                "left": happened[name]["left"],
            }
        )
    return {"rows": rows, "live": live}


def _asked(run: FollowedRun, clients: int) -> np.ndarray:
    """Count the rounds in which each client was asked for a report or to train."""
    counts = np.zeros(max(clients, run.table.clients), int)
    reports = run.table.matrix("reports")
    asked = np.zeros((len(run.table), len(counts)), bool)
    if reports is not None:
        asked[:, : reports.shape[1]] |= ~np.isnan(reports)
    asked[run.table.picks[:, 0], run.table.picks[:, 1]] = True
    place = {int(number): index for index, number in enumerate(run.table.numbers("round"))}
    for number, what, who in run.table.faults:
        if what in NO_ANSWER:
            asked[place[number], [client for client in who if client < len(counts)]] = True
    return counts + asked.sum(axis=0)


def _reported(run: FollowedRun, clients: int) -> np.ndarray:
    reports = run.table.matrix("reports")
    counts = np.zeros(max(clients, run.table.clients), int)
    if reports is not None:
        counts[: reports.shape[1]] = (~np.isnan(reports)).sum(axis=0)
    return counts
